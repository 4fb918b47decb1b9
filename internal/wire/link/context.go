package link

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// requestContext is the context of a ServerRequest. It makes a context that can be waited for on first use, to save its
// cost. mu guards the fields below it; ended is final.
type requestContext struct {
	conn     *conn
	deadline time.Time // zero for none

	mu    sync.Mutex
	ended bool            // cancel was called
	waits context.Context // nil until it is needed
	stop  context.CancelFunc
}

func (c *requestContext) Deadline() (time.Time, bool) {
	return c.deadline, !c.deadline.IsZero()
}

func (c *requestContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waits == nil {
		if c.deadline.IsZero() || c.ended {
			c.waits, c.stop = context.WithCancel(context.Background())
		} else {
			c.waits, c.stop = context.WithDeadline(context.Background(), c.deadline)
		}
		if c.ended {
			c.stop()
		}
	}
	return c.waits.Done()
}

func (c *requestContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.waits != nil:
		return c.waits.Err()
	case c.ended:
		return context.Canceled
	case !c.deadline.IsZero() && !time.Now().Before(c.deadline):
		return context.DeadlineExceeded
	}
	return nil
}

// Value implements context.Context. It knows the keys of net/http's servers: a
// [net/http/httputil.ReverseProxy] aborts a broken answer only where there is one. With the keys of
// waits, package context derives contexts without a goroutine that waits.
func (c *requestContext) Value(key any) any {
	switch key {
	case http.LocalAddrContextKey:
		return c.conn.nc.LocalAddr()
	case http.ServerContextKey:
		return new(http.Server)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waits == nil {
		return nil
	}
	return c.waits.Value(key)
}

// cancel makes c done.
func (c *requestContext) cancel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.stop != nil {
		c.stop()
	}
}
