// Package wake has goroutines wake each other by channels, sleep, and run until they are stopped.
package wake

import (
	"context"
	"sync"
	"time"
)

// Background runs f on a goroutine. stop ends f's context and waits for f; it may be called again.
func Background(f func(ctx context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { f(ctx) })
	return func() { cancel(); running.Wait() }
}

// Up wakes the receiver of ch: now, or when it receives next. Several calls before that count as
// one. A nil channel is ignored.
func Up(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Round wakes all of its waiters at its end, when another one begins. The zero Round has none.
type Round struct {
	mu   sync.Mutex    // guards over
	over chan struct{} // nil without waiters
}

// Over returns a channel that is closed at the end of this round.
func (r *Round) Over() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over == nil {
		r.over = make(chan struct{})
	}
	return r.over
}

// End ends this round.
func (r *Round) End() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over != nil {
		close(r.over)
		r.over = nil
	}
}

// Sleep waits for d, and reports false if done was ready before.
func Sleep(d time.Duration, done <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-done:
		return false
	}
}
