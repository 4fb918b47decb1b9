package netproxy

import (
	"bufio"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"
)

// echo counts the lines that it has received and answers each with itself.
func echo(t *testing.T) (addr string, lines *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	lines = new(atomic.Int64)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				in := bufio.NewScanner(c)
				for in.Scan() {
					lines.Add(1)
					if _, err := c.Write(append(in.Bytes(), '\n')); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String(), lines
}

type client struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func start(t *testing.T) (*Proxy, *client, *atomic.Int64) {
	t.Helper()
	addr, lines := echo(t)
	p, err := New(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p, dial(t, p), lines
}

func dial(t *testing.T, p *Proxy) *client {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &client{t, conn, bufio.NewReader(conn)}
}

func (c *client) send() {
	c.t.Helper()
	if _, err := c.conn.Write([]byte("hello\n")); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) receive(within time.Duration) error {
	c.t.Helper()
	if err := c.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		c.t.Fatal(err)
	}
	_, err := c.in.ReadString('\n')
	return err
}

func (c *client) wantReply() {
	c.t.Helper()
	if err := c.receive(time.Minute); err != nil {
		c.t.Fatalf("no reply: %v", err)
	}
}

func (c *client) wantSilence() {
	c.t.Helper()
	if err := c.receive(50 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("got %v, want silence", err)
	}
}

func (c *client) wantClosed() {
	c.t.Helper()
	err := c.receive(time.Minute)
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("got %v, want a closed connection", err)
	}
}

func TestForwards(t *testing.T) {
	_, c, _ := start(t)
	c.send()
	c.wantReply()
}

func TestDelayKeepsOrderAndDoesNotAddUp(t *testing.T) {
	p, c, _ := start(t)
	const delay = time.Second
	p.Set(ToServer, Fault{Delay: delay})
	begin := time.Now()
	for range 20 {
		c.send()
	}
	for range 20 {
		c.wantReply()
	}
	if took := time.Since(begin); took < delay || took > 10*delay {
		t.Errorf("20 lines took %v with a delay of %v", took, delay)
	}
}

func TestDropRepliesLeavesRequestsAlone(t *testing.T) {
	p, c, lines := start(t)
	p.Set(ToClient, Fault{Drop: true})
	c.send()
	c.wantSilence()
	if lines.Load() != 1 {
		t.Errorf("the server saw %d lines, want 1", lines.Load())
	}
	p.Heal()
	c.send()
	c.wantReply()
}

func TestStallHoldsBackAndDeliversLater(t *testing.T) {
	p, c, _ := start(t)
	p.Set(ToClient, Fault{Stall: true})
	c.send()
	c.wantSilence()
	p.Heal()
	c.wantReply()
}

func TestCutNextLosesOneReply(t *testing.T) {
	p, c, lines := start(t)
	c.send()
	c.wantReply()
	p.CutNext(ToClient)
	if !p.Pending(ToClient) {
		t.Error("CutNext is not pending before any bytes")
	}
	c.send()
	c.wantClosed()
	if lines.Load() != 2 {
		t.Errorf("the server saw %d lines, want 2", lines.Load())
	}
	if p.Pending(ToClient) {
		t.Error("CutNext is pending after it has cut")
	}
	again := dial(t, p)
	again.send()
	again.wantReply()
}

func TestCutNextOfARequestKeepsItFromTheServer(t *testing.T) {
	p, c, lines := start(t)
	p.CutNext(ToServer)
	c.send()
	c.wantClosed()
	if lines.Load() != 0 {
		t.Errorf("the server saw %d lines, want 0", lines.Load())
	}
}

func TestCutAndRefuse(t *testing.T) {
	p, c, _ := start(t)
	c.send()
	c.wantReply()
	p.Refuse(true)
	p.Cut()
	c.wantClosed()
	dial(t, p).wantClosed()
	p.Refuse(false)
	again := dial(t, p)
	again.send()
	again.wantReply()
}

func TestCloseEndsStalledConnections(t *testing.T) {
	p, c, _ := start(t)
	p.Set(ToClient, Fault{Stall: true})
	c.send()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	c.wantClosed()
	if err := p.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if _, err := net.Dial("tcp", p.Addr()); err == nil {
		t.Error("a closed proxy accepts")
	}
}
