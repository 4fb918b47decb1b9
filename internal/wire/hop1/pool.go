package hop1

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// ErrNotStarted is wrapped by the error of a request that the server has provably
// not begun with.
var ErrNotStarted = errors.New("hop1: the request has not started")

// ErrFull is wrapped by the error of a request that has waited for a connection
// for all of Pool.Wait. ErrNotStarted is too.
var ErrFull = errors.New("hop1: all connections are in use")

// idlePeriod is the default of Pool.Idle.
const idlePeriod = 45 * time.Second

// freshTries bounds the new connections for a request that end before anything
// of it has reached the server.
const freshTries = 3

// Pool keeps connections to a server. Its fields must not change after the first use. mu guards the
// idle connections, which come and go with requests, sweep, Trim and Close; closed is final.
type Pool struct {
	Dial  func(ctx context.Context) (net.Conn, error)
	Conns int           // at most, at one time; more requests wait. 0 means 1
	Wait  time.Duration // bounds that wait: then it fails with ErrFull. 0: as long as its context lasts
	Full  func()        // called when a request begins to wait. Default: nothing
	Idle  time.Duration // interval of looks at idle connections: one idle for all of it is closed. 0 means 45 s

	// Grace is how long the server may continue with a request whose connection is given up before
	// the answer is complete. The connection is then half-closed and incoming bytes are dropped;
	// the goroutine that gave it up waits until the server closes it or Grace has passed. 0 means
	// to close it at once.
	Grace time.Duration
	// Overdue is called with the request's context when Grace has passed and
	// the server has not closed the connection. Default: nothing.
	Overdue func(ctx context.Context)

	setup sync.Once
	turns chan struct{} // holds an element for each connection in use

	mu     sync.Mutex // guards what follows
	idle   []*conn    // the one used last at the end
	period int        // counts times of Idle
	sweep  *time.Timer
	closed bool
}

func (p *Pool) init() {
	p.setup.Do(func() {
		p.turns = make(chan struct{}, max(p.Conns, 1))
		p.Idle = cmp.Or(p.Idle, idlePeriod)
	})
}

// get returns a connection, whose user ends its use with put or drop. Its error
// wraps ErrNotStarted.
func (p *Pool) get(ctx context.Context) (*conn, error) {
	p.init()
	if err := AwaitTurn(ctx, p.turns, p.Wait, p.Full); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotStarted, err)
	}
	if c := p.pop(); c != nil {
		return c, nil
	}
	nc, err := p.Dial(ctx)
	if err != nil {
		<-p.turns
		return nil, fmt.Errorf("%w: %w", ErrNotStarted, err)
	}
	return newConn(nc), nil
}

// AwaitTurn waits until turns takes one element more: for as long as ctx lasts, and for
// limit at most unless that is 0, when the error wraps [ErrFull]. If it has to wait, it
// calls full first, unless that is nil.
func AwaitTurn(ctx context.Context, turns chan<- struct{}, limit time.Duration, full func()) error {
	select {
	case turns <- struct{}{}:
		return nil
	default:
	}
	if full != nil {
		full()
	}
	var timeout <-chan time.Time
	if limit > 0 {
		timeout = time.After(limit)
	}
	select {
	case turns <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timeout:
		return fmt.Errorf("%w: %d, and none became free in %v", ErrFull, cap(turns), limit)
	}
}

func (p *Pool) pop() *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle) - 1
	if n < 0 {
		return nil
	}
	c := p.idle[n]
	p.idle[n] = nil
	p.idle = p.idle[:n]
	return c
}

func (p *Pool) put(c *conn) {
	if !p.keep(c) {
		c.nc.Close()
	}
	<-p.turns
}

func (p *Pool) keep(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	c.pooled, c.period = true, p.period
	p.idle = append(p.idle, c)
	if p.sweep == nil {
		p.sweep = time.AfterFunc(p.Idle, p.sweepIdle)
	}
	return true
}

func (p *Pool) drop(c *conn) {
	c.nc.Close()
	<-p.turns
}

// giveUp ends the use of a connection whose answer is not complete: the server
// may be working for it.
func (p *Pool) giveUp(ctx context.Context, c *conn) {
	if p.Grace > 0 && !c.awaitEnd(p.Grace) && p.Overdue != nil {
		p.Overdue(ctx)
	}
	p.drop(c)
}

// Trim closes the longest unused idle connections until no more than most are left, and returns
// their number.
func (p *Pool) Trim(most int) (left int) {
	p.closeOldest(func() int {
		left = min(max(most, 0), len(p.idle))
		return len(p.idle) - left
	})
	return left
}

// closeOldest closes the idle connections that were used longest ago, as many as choose returns,
// which is called under the mutex.
func (p *Pool) closeOldest(choose func() int) {
	p.mu.Lock()
	n := choose()
	old := slices.Clone(p.idle[:n])
	p.idle = slices.Delete(p.idle, 0, n)
	p.mu.Unlock()
	for _, c := range old {
		c.nc.Close()
	}
}

// sweepIdle closes the connections that have lain idle since before its last call.
func (p *Pool) sweepIdle() {
	p.closeOldest(func() (n int) {
		for n < len(p.idle) && p.idle[n].period < p.period {
			n++
		}
		p.period++
		p.sweep = nil
		if n < len(p.idle) {
			p.sweep = time.AfterFunc(p.Idle, p.sweepIdle)
		}
		return n
	})
}

// Close closes the idle connections. Those in use are closed when they are done
// with. It may be called more than once.
func (p *Pool) Close() {
	p.closeOldest(func() int {
		if p.closed = true; p.sweep != nil {
			p.sweep.Stop()
			p.sweep = nil
		}
		return len(p.idle)
	})
}
