// Package netproxy is a TCP proxy for tests that makes the network between a
// client and a server as bad as a test wants it: slow, stalled, silent in one
// direction, or cut at the moment when a reply is on its way.
//
// A Proxy forwards faithfully until it is told otherwise. Faults apply to
// the connections that are open and to those that come later.
package netproxy

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// Direction is a way that bytes travel.
type Direction int

// The two directions.
const (
	ToServer Direction = iota // from the client that dialed the proxy
	ToClient                  // replies
)

// Fault is what happens to the bytes of one direction. The zero Fault
// forwards them at once.
type Fault struct {
	Delay time.Duration // later by this much, in order, without narrowing the stream
	Drop  bool          // swallowed; the connection stays open
	Stall bool          // held back until Stall ends
}

// Proxy forwards TCP connections to one target. Its methods may be called
// at any time from any goroutine.
type Proxy struct {
	target   string
	listener net.Listener
	ctx      context.Context
	stop     context.CancelFunc
	running  sync.WaitGroup

	mu       sync.Mutex
	faults   [2]Fault
	cutNext  [2]bool
	refusing bool
	conns    map[*pair]struct{}
	came     [2]int
	changed  chan struct{} // closed and replaced when the fields above change
}

// pair is a client's connection with the one to the server.
type pair struct {
	client, server net.Conn
	gone           context.Context // done once close was called
	cancel         context.CancelFunc
}

func (p *pair) close() {
	p.cancel()
	_ = p.client.Close()
	_ = p.server.Close()
}

// New starts a proxy on a free port of 127.0.0.1 in front of target
// (host:port), which need not be up yet.
func New(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		target:   target,
		listener: l,
		conns:    map[*pair]struct{}{},
		changed:  make(chan struct{}),
	}
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.running.Go(p.accept)
	return p, nil
}

// Addr is the host:port that clients dial.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Set replaces the fault of a direction.
func (p *Proxy) Set(d Direction, f Fault) {
	p.update(func() { p.faults[d] = f })
}

// CutNext makes the next bytes of a direction disappear and closes the
// connection that carried them, once. With ToClient it loses exactly one
// reply whose request the server has carried out.
func (p *Proxy) CutNext(d Direction) {
	p.update(func() { p.cutNext[d] = true })
}

// Refuse makes the proxy close new connections at once, or accept them again.
func (p *Proxy) Refuse(yes bool) {
	p.update(func() { p.refusing = yes })
}

// Cut closes every open connection.
func (p *Proxy) Cut() {
	p.update(func() {
		for c := range p.conns {
			c.close()
		}
	})
}

// Heal removes every fault.
func (p *Proxy) Heal() {
	p.update(func() {
		p.faults = [2]Fault{}
		p.cutNext = [2]bool{}
		p.refusing = false
	})
}

// Pending says whether a CutNext of that direction still waits for bytes.
func (p *Proxy) Pending(d Direction) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cutNext[d]
}

// Came counts the bytes that have come for that direction, delivered or not.
func (p *Proxy) Came(d Direction) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.came[d]
}

// Close ends the proxy and every connection, and waits until all is gone.
func (p *Proxy) Close() error {
	p.stop()
	err := p.listener.Close()
	p.Cut()
	p.running.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (p *Proxy) update(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	if p.isRefusing() {
		return
	}
	var d net.Dialer
	server, err := d.DialContext(p.ctx, "tcp", p.target)
	if err != nil {
		return
	}
	c := &pair{client: client, server: server}
	c.gone, c.cancel = context.WithCancel(p.ctx)
	defer c.close()
	if !p.add(c) {
		return
	}
	defer p.remove(c)

	var both sync.WaitGroup
	both.Go(func() { p.forward(c, ToServer, client, server) })
	both.Go(func() { p.forward(c, ToClient, server, client) })
	both.Wait()
}

func (p *Proxy) isRefusing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refusing
}

func (p *Proxy) add(c *pair) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil || p.refusing { // from then on Cut closes none that it does not see
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) remove(c *pair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}
