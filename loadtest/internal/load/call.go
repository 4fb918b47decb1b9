//go:build linux

package load

import (
	"context"
	"sync"
	"time"
)

// maxFailed is when the streams of calls give up.
const maxFailed = 100_000

// runCalls makes a closed loop of Config.Call, with a goroutine for each stream.
func (c *course) runCalls(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var streams sync.WaitGroup
	for i := range c.Streams {
		streams.Go(func() { c.call(ctx, i*sequenceLen/c.Streams) })
	}
	poll := time.NewTicker(tick)
	defer poll.Stop()
	for drains := false; !drains; {
		select {
		case <-poll.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		c.mu.Lock()
		if now := c.now(); now >= c.ends {
			c.advance(now)
		}
		drains = c.phase == draining
		c.mu.Unlock()
	}
	late := time.AfterFunc(c.Timeout, cancel)
	defer late.Stop()
	streams.Wait()
	return nil
}

// call makes one request after the other, from a position in the sequence.
func (c *course) call(ctx context.Context, position int) {
	for ctx.Err() == nil {
		begun := c.now()
		length, err := c.Call(ctx, string(c.next(&position)))
		c.mu.Lock()
		if err != nil {
			c.fail(begun, c.now(), kindOf(err))
		} else {
			c.count(0, begun, c.now(), 200, length, nil)
		}
		ends := c.phase == draining || c.failed >= maxFailed
		c.mu.Unlock()
		if ends {
			return
		}
	}
}
