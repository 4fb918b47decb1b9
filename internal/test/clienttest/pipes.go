package clienttest

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

	"github.com/keyway-go/keyway/internal/test/routertest"
	"github.com/keyway-go/keyway/internal/wire/netutil"
)

// Pipes is a network in memory, for bubbles of synctest.
type Pipes struct {
	mu        sync.Mutex
	listeners map[string]*netutil.Listener
	Dials     atomic.Int64
}

// Dial connects to an address of the network.
func (n *Pipes) Dial(ctx context.Context, _, addr string) (net.Conn, error) {
	n.Dials.Add(1)
	n.mu.Lock()
	l := n.listeners[addr]
	n.mu.Unlock()
	if l == nil {
		time.Sleep(20 * time.Millisecond) // that it takes to find out
		return nil, fmt.Errorf("dial %s: connection refused", addr)
	}
	ours, theirs := net.Pipe()
	if !l.Put(theirs, ctx.Done(), nil) {
		return nil, cmp.Or(ctx.Err(), net.ErrClosed)
	}
	return ours, nil
}

// Listen returns where connections to an address of the network come.
func (n *Pipes) Listen(addr string) net.Listener {
	l := netutil.NewListener(&net.TCPAddr{})
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners == nil {
		n.listeners = make(map[string]*netutil.Listener)
	}
	n.listeners[addr] = l
	return l
}

// Serve starts a worker on the network.
func (n *Pipes) Serve(t *testing.T, addr string, h http.HandlerFunc) {
	s := routertest.NetServer()
	s.Handler = h
	go s.Serve(n.Listen(addr))
	t.Cleanup(func() { s.Close() })
}
