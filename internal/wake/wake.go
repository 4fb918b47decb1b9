// Package wake has goroutines wake each other by channels with room for one, and sleep.
package wake

import "time"

// Up wakes the receiver of ch: now, or when it receives next. Several calls before that count as
// one. A nil channel is ignored.
func Up(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
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
