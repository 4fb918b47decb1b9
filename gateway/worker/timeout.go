package worker

import (
	"context"
	"errors"
	"time"

	"github.com/keyway-go/keyway/gateway"
)

// errAbandoned is the cause with which an execution at an app is cancelled.
var errAbandoned = errors.New("worker: the client has left, and the app has not answered in full since (Limits.AbandonedTimeout)")

// bound ends x when it has taken that long. It must be called before x's context
// is used.
func (x execution) bound(timeout time.Duration) {
	x.run.began, x.run.timeout = x.run.part.keys.now(), timeout
}

// late reports whether the execution of c has taken as long as it may.
func (c *runContext) late() bool { return c.timeout != 0 && c.part.keys.now() >= c.began+c.timeout }

// sweepStep is the longest time between two looks of cancelOverdue.
const sweepStep = 100 * time.Millisecond

// cancelOverdue cancels the executions that have taken their timeout, and those
// whose clients left AbandonedTimeout ago. Since it looks at all from time to
// time, neither a timer nor anything else is made for a single one.
func (k *keys) cancelOverdue(ctx context.Context) {
	tick := time.NewTicker(max(min(k.cfg.Timeout/10, k.cfg.AbandonedTimeout/10, sweepStep), time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if !k.slow.on.Load() {
				continue // no key is held
			}
			for i := range k.parts {
				for c, cause := range k.parts[i].overdue(now) {
					c.cancel(cause)
				}
			}
		}
	}
}

// overdue returns the contexts of executions that are to be cancelled, and why.
func (p *partition) overdue(now time.Time) (list map[*runContext]error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	note := func(c *runContext, cause error) {
		if list == nil {
			list = make(map[*runContext]error)
		}
		list[c] = cause
	}
	since := now.Sub(p.keys.base)
	for c := p.live; c != nil; c = c.next {
		switch {
		case c.timeout != 0 && since >= c.began+c.timeout:
			note(c, gateway.ErrTimeout)
		case c.client == nil:
		case !c.left.IsZero() && now.Sub(c.left) >= p.keys.cfg.AbandonedTimeout:
			note(c, errAbandoned)
		case c.left.IsZero() && c.client.Err() != nil:
			c.left = now
		}
	}
	return list
}

// cause returns why the execution of c was cancelled, if it was; perhaps that it has ended.
func (c *runContext) cause() error {
	c.mu.Lock()
	inner := c.inner
	c.mu.Unlock()
	if inner == nil {
		return nil
	}
	return context.Cause(inner)
}

// cancelled returns the name of why the execution of c was cancelled, "" if it was not. c may be nil.
func (c *runContext) cancelled() string {
	if c == nil {
		return ""
	}
	if cause, ok := cancelCauseOf(c.cause()); ok {
		return cause.String()
	}
	return ""
}

// noteEnd counts an execution that was cancelled, once it has ended, and logs it if that was by
// its timeout.
func (c *runContext) noteEnd() {
	k, cause := c.part.keys, c.cause()
	if cause == nil {
		return
	}
	k.counts.end(cause)
	if cause != gateway.ErrTimeout {
		return
	}
	k.cfg.Log.Warn("an execution was cancelled: it had taken as long as it may (Limits.Timeout, --timeout)",
		"key", c.key, "partition", c.part.number, "token", c.token, "timeout", c.timeout, "ran", k.now()-c.began)
}
