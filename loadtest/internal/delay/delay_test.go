//go:build linux

package delay

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// listen serves each connection with a function until the test ends.
func listen(t *testing.T, serve func(*net.TCPConn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { defer c.Close(); serve(c.(*net.TCPConn)) })
		}
	})
	t.Cleanup(func() { l.Close(); serving.Wait() })
	return l.Addr().String()
}

func echo(c *net.TCPConn) { _, _ = io.Copy(c, c) } // a failure shows at the other end

func network(t *testing.T, roundTrip time.Duration, to string) (*Network, string) {
	t.Helper()
	n := New(roundTrip)
	t.Cleanup(n.Close)
	addr, err := n.Forward(to)
	if err != nil {
		t.Fatal(err)
	}
	return n, addr
}

func dial(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

// TestRoundTrip: nothing is back before a round trip has passed.
func TestRoundTrip(t *testing.T) {
	const roundTrip = 5 * time.Millisecond
	_, addr := network(t, roundTrip, listen(t, echo))
	c := dial(t, addr)
	var times []time.Duration
	b := make([]byte, 1)
	for range 20 {
		began := time.Now()
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, b); err != nil {
			t.Fatal(err)
		}
		times = append(times, time.Since(began))
	}
	if least := slices.Min(times); least < roundTrip {
		t.Errorf("a round trip of %v took %v", roundTrip, least)
	}
	t.Logf("median %v of %v", slices.Sorted(slices.Values(times))[10], roundTrip)
}

// TestBytes: all that is sent arrives, whole and in order, over many
// connections at once and though it is more than may be on its way.
func TestBytes(t *testing.T) {
	_, addr := network(t, time.Millisecond, listen(t, echo))
	var clients sync.WaitGroup
	for range 8 {
		c := dial(t, addr)
		want := make([]byte, 2*maxOnWay*pieceSize)
		_, _ = rand.Read(want)
		clients.Go(func() {
			if _, err := c.Write(want); err != nil {
				t.Error(err)
			}
			if err := c.CloseWrite(); err != nil {
				t.Error(err)
			}
		})
		clients.Go(func() {
			got, err := io.ReadAll(c)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes came back of %d: %v", len(got), len(want), err)
			}
		})
	}
	clients.Wait()
}

// TestBound: a sender is not read without end when nobody reads at the other
// side.
func TestBound(t *testing.T) {
	stop := make(chan struct{})
	_, addr := network(t, time.Millisecond, listen(t, func(*net.TCPConn) { <-stop }))
	defer close(stop)
	c := dial(t, addr)
	if err := c.SetWriteDeadline(time.Now().Add(2 * time.Second)); err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(c, io.LimitReader(zeros{}, 64<<20))
	if err == nil {
		t.Errorf("all %d bytes were taken", n)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// TestEnds: each side learns how the other one ended, after what it sent.
func TestEnds(t *testing.T) {
	_, addr := network(t, time.Millisecond, listen(t, func(c *net.TCPConn) {
		_, _ = c.Write([]byte("last words"))
	}))
	if got, err := io.ReadAll(dial(t, addr)); err != nil || string(got) != "last words" {
		t.Errorf("%q, %v", got, err)
	}
	seen := make(chan error, 1)
	_, addr = network(t, time.Millisecond, listen(t, func(c *net.TCPConn) {
		_, err := io.Copy(io.Discard, c)
		seen <- err
	}))
	c := dial(t, addr)
	if err := c.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := <-seen; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a connection that was reset ended with %v", err)
	}
}

// TestRefused: a target that nobody listens on breaks connections, and an
// address that was removed refuses them.
func TestRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := l.Addr().String()
	l.Close()
	n, addr := network(t, time.Millisecond, gone)
	c, err := net.Dial("tcp", addr)
	if err == nil { // else it was broken before that was known
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		_, err = io.ReadAll(c)
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a target that is gone: %v", err)
	}
	n.Remove(addr)
	if _, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("an address that was removed: %v", err)
	}
	n.Close()
	if _, err := n.Forward(gone); err == nil {
		t.Error("a closed network forwards")
	}
	n.Close()
}
