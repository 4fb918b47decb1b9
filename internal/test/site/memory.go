package site

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/wire/netutil"
)

// Listener takes connections in memory, which its Dial makes. Make one with [NewListener].
type Listener struct{ *netutil.Listener }

// NewListener makes a listener.
func NewListener() Listener { return Listener{netutil.NewListener(&net.TCPAddr{})} }

// Dial makes a connection. Each of its directions can end first.
func (l Listener) Dial(ctx context.Context) (net.Conn, error) {
	a1, b1 := net.Pipe()
	a2, b2 := net.Pipe()
	if !l.Put(memoryConn{b2, b1}, ctx.Done(), nil) {
		return nil, cmp.Or(ctx.Err(), net.ErrClosed)
	}
	return memoryConn{a1, a2}, nil
}

// memoryConn is one end of a connection in memory.
type memoryConn struct {
	net.Conn          // to read from
	out      net.Conn // to write to
}

func (c memoryConn) Write(b []byte) (int, error)        { return c.out.Write(b) }
func (c memoryConn) CloseWrite() error                  { return c.out.Close() }
func (c memoryConn) Close() error                       { return errors.Join(c.Conn.Close(), c.out.Close()) }
func (c memoryConn) SetWriteDeadline(t time.Time) error { return c.out.SetWriteDeadline(t) }
func (c memoryConn) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 40404}
}
func (c memoryConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// Network is addresses in memory, for bubbles of synctest.
type Network struct {
	Dials atomic.Int64

	mu     sync.Mutex // guards what follows
	places map[string]*place
	method string        // of calls whose answers are late
	late   time.Duration // by how much
}

// place is an address of a Network.
type place struct {
	Listener
	conns []net.Conn // clients' ends
	cut   bool       // nothing reaches it
	mute  bool       // clients hear nothing of it
}

// Listen returns the listener of an address.
func (n *Network) Listen(addr string) net.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.places == nil {
		n.places = make(map[string]*place)
	}
	n.places[addr] = &place{Listener: NewListener()}
	return n.places[addr]
}

// Serve serves HTTP at an address until the test ends.
func (n *Network) Serve(t *testing.T, addr string, h http.HandlerFunc) {
	s := NetServer()
	s.Handler = h
	go s.Serve(n.Listen(addr))
	t.Cleanup(func() { s.Close() })
}

// Dial connects to an address of the network.
func (n *Network) Dial(ctx context.Context, _, addr string) (net.Conn, error) {
	n.Dials.Add(1)
	n.mu.Lock()
	p := n.places[addr]
	refused := p == nil || p.cut
	n.mu.Unlock()
	if refused {
		time.Sleep(20 * time.Millisecond) // that it takes to find out
		return nil, fmt.Errorf("dial %s: connection refused", addr)
	}
	near, err := p.Dial(ctx)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	p.conns = append(p.conns, near)
	return &networkConn{Conn: near, network: n, to: p}, nil
}

// Sever ends all connections to an address, and allows new ones or not.
func (n *Network) Sever(addr string, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.places[addr]
	for _, c := range p.conns {
		c.Close()
	}
	p.conns, p.cut = nil, cut
}

// Mute lets clients hear nothing more of an address, or hear it again.
func (n *Network) Mute(addr string, mute bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.places[addr].mute = mute
}

// Delay lets the answers to calls of a method take longer from now on.
func (n *Network) Delay(method string, by time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.method, n.late = method, by
}

// networkConn is a client's end of a connection.
type networkConn struct {
	net.Conn
	network *Network
	to      *place
	late    atomic.Bool // what is read next comes late
}

func (c *networkConn) Write(p []byte) (int, error) {
	c.network.mu.Lock()
	late := c.network.method != "" && bytes.Contains(p, []byte(c.network.method))
	c.network.mu.Unlock()
	if late {
		c.late.Store(true)
	}
	return c.Conn.Write(p)
}

func (c *networkConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		c.network.mu.Lock()
		late := c.network.late
		c.network.mu.Unlock()
		if c.late.Swap(false) {
			time.Sleep(late)
		}
		c.network.mu.Lock()
		mute := c.to.mute
		c.network.mu.Unlock()
		if !mute || err != nil {
			return n, err
		}
	}
}
