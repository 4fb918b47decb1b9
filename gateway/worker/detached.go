package worker

import (
	"context"
	"errors"
	"time"
)

// errAbandoned is the cause with which an execution at an app is cancelled.
var errAbandoned = errors.New("worker: the client has left, and the app has not answered in full since (Config.AbandonedTimeout)")

// detach makes x outlive its caller, the client, until the app has answered or
// for AbandonedTimeout. It must be called before x's context is used.
func (x Execution) detach() {
	client := x.run.parent
	x.run.parent = context.WithoutCancel(client)
	if c, ok := x.Context().(*runContext); ok {
		c.client = client
	}
}

// clientLeft notes that the client has left.
func (c *runContext) clientLeft() {
	c.part.mu.Lock()
	defer c.part.mu.Unlock()
	if c.left.IsZero() {
		c.left = time.Now()
	}
}

// cancelAbandoned cancels the executions whose clients left AbandonedTimeout
// ago, until the worker is closed. That nobody watches a single client costs
// requests nothing.
func (w *Worker) cancelAbandoned() {
	tick := time.NewTicker(max(w.cfg.AbandonedTimeout/10, 1))
	defer tick.Stop()
	for {
		select {
		case <-w.shell.ctx.Done():
			return
		case now := <-tick.C:
			for i := range w.parts {
				for _, c := range w.parts[i].abandoned(now, w.cfg.AbandonedTimeout) {
					c.cancel(errAbandoned)
				}
			}
		}
	}
}

// abandoned returns the contexts of executions whose clients left that long ago.
func (p *partition) abandoned(now time.Time, timeout time.Duration) (list []*runContext) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.live {
		switch {
		case c.client == nil:
		case !c.left.IsZero() && now.Sub(c.left) >= timeout:
			list = append(list, c)
		case c.left.IsZero() && c.client.Err() != nil:
			c.left = now
		}
	}
	return list
}
