package link

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// requestContext is the context of a ServerRequest. It creates its channel and its timer on first
// use, to save their cost. mu guards the fields below it; err, once set, is final.
type requestContext struct {
	conn     *conn
	deadline time.Time // zero for none

	mu    sync.Mutex
	done  chan struct{}
	err   error
	timer *time.Timer
	after map[*func()]struct{} // what AfterFunc was given
}

func (c *requestContext) Deadline() (time.Time, bool) {
	return c.deadline, !c.deadline.IsZero()
}

func (c *requestContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.err != nil {
			close(c.done)
		}
	}
	c.armLocked()
	return c.done
}

func (c *requestContext) armLocked() {
	if c.timer == nil && c.err == nil && !c.deadline.IsZero() {
		c.timer = time.AfterFunc(time.Until(c.deadline), func() { c.cancel(context.DeadlineExceeded) })
	}
}

func (c *requestContext) Err() error {
	if !c.deadline.IsZero() && !time.Now().Before(c.deadline) {
		c.cancel(context.DeadlineExceeded)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Value implements context.Context. It knows the keys of net/http's servers: a
// [net/http/httputil.ReverseProxy] aborts a broken answer only where there is one.
func (c *requestContext) Value(key any) any {
	switch key {
	case http.LocalAddrContextKey:
		return c.conn.nc.LocalAddr()
	case http.ServerContextKey:
		return new(http.Server)
	}
	return nil
}

// AfterFunc runs f in a goroutine of its own once c is done. Package context
// uses it to derive contexts without a goroutine that waits.
func (c *requestContext) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		go f()
		return func() bool { return false }
	}
	if c.after == nil {
		c.after = make(map[*func()]struct{})
	}
	p := &f
	c.after[p] = struct{}{}
	c.armLocked()
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, waiting := c.after[p]
		delete(c.after, p)
		return waiting
	}
}

// cancel makes c done; the first err stays.
func (c *requestContext) cancel(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	if c.done != nil {
		close(c.done)
	}
	if c.timer != nil {
		c.timer.Stop()
	}
	for f := range c.after {
		go (*f)()
	}
	c.after = nil
}
