package site

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/wire/netutil"
)

// Pipes is a network in memory, for bubbles of synctest.
type Pipes struct {
	Dials     atomic.Int64
	mu        sync.Mutex // guards what follows
	listeners map[string]*netutil.Listener
	conns     map[string][]net.Conn // clients' ends, by address
	cut       map[string]bool       // addresses that nothing reaches
}

// Dial connects to an address of the network.
func (n *Pipes) Dial(ctx context.Context, _, addr string) (net.Conn, error) {
	n.Dials.Add(1)
	n.mu.Lock()
	l, cut := n.listeners[addr], n.cut[addr]
	n.mu.Unlock()
	if l == nil || cut {
		time.Sleep(20 * time.Millisecond) // that it takes to find out
		return nil, fmt.Errorf("dial %s: connection refused", addr)
	}
	ours, theirs := net.Pipe()
	if !l.Put(far{theirs}, ctx.Done(), nil) {
		return nil, cmp.Or(ctx.Err(), net.ErrClosed)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns[addr] = append(n.conns[addr], ours)
	return ours, nil
}

// far is the listener's end of a connection, which comes from an address of TCP.
type far struct{ net.Conn }

func (far) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 40404} }

// Sever ends all connections to an address, and allows new ones or not.
func (n *Pipes) Sever(addr string, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[addr] = cut
	for _, c := range n.conns[addr] {
		c.Close()
	}
	n.conns[addr] = nil
}

// Listen returns where connections to an address of the network come.
func (n *Pipes) Listen(addr string) net.Listener {
	l := netutil.NewListener(&net.TCPAddr{})
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners == nil {
		n.listeners, n.conns, n.cut = make(map[string]*netutil.Listener), make(map[string][]net.Conn), make(map[string]bool)
	}
	n.listeners[addr] = l
	return l
}

// Serve starts a worker on the network.
func (n *Pipes) Serve(t *testing.T, addr string, h http.HandlerFunc) {
	s := NetServer()
	s.Handler = h
	go s.Serve(n.Listen(addr))
	t.Cleanup(func() { s.Close() })
}
