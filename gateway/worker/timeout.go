package worker

import (
	"context"
	"errors"
	"time"
)

// errAbandoned is the cause with which an execution at an app is cancelled.
var errAbandoned = errors.New("worker: the client has left, and the app has not answered in full since (Limits.AbandonedTimeout)")

// now returns the time since the worker's start.
func (w *Worker) now() time.Duration { return time.Since(w.base) }

// bound ends x when it has taken that long. It must be called before x's context
// is used.
func (x execution) bound(timeout time.Duration) {
	x.run.began, x.run.timeout = x.run.part.worker.now(), timeout
}

// late reports whether the execution of c has taken as long as it may.
func (c *runContext) late() bool { return c.timeout != 0 && c.part.worker.now() >= c.began+c.timeout }

// watch cancels what takes too long from now on, until the worker is closed.
func (w *Worker) watch() {
	w.watching.Do(func() { w.shell.ended.Go(w.cancelOverdue) })
}

// sweepStep is the longest time between two looks of cancelOverdue.
const sweepStep = 100 * time.Millisecond

// cancelOverdue cancels the executions that have taken their timeout, and those
// whose clients left AbandonedTimeout ago. Since it looks at all from time to
// time, neither a timer nor anything else is made for a single one.
func (w *Worker) cancelOverdue() {
	tick := time.NewTicker(max(min(w.cfg.Timeout/10, w.cfg.AbandonedTimeout/10, sweepStep), time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-w.shell.ctx.Done():
			return
		case now := <-tick.C:
			if !w.slow.on.Load() {
				continue // no key is held
			}
			for i := range w.parts {
				for c, cause := range w.parts[i].overdue(now) {
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
	since := now.Sub(p.worker.base)
	for c := p.live; c != nil; c = c.next {
		switch {
		case c.timeout != 0 && since >= c.began+c.timeout:
			note(c, ErrTimeout)
		case c.client == nil:
		case !c.left.IsZero() && now.Sub(c.left) >= p.worker.cfg.AbandonedTimeout:
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
	w, cause := c.part.worker, c.cause()
	if cause == nil {
		return
	}
	w.counts.end(cause)
	if cause != ErrTimeout {
		return
	}
	w.log.Warn("an execution was cancelled: it had taken as long as it may (Limits.Timeout, --timeout)",
		"key", c.key, "partition", c.part.number, "token", c.token, "timeout", c.timeout, "ran", w.now()-c.began)
}
