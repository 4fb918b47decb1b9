package link

import (
	"context"
	"errors"
	"slices"
	"time"
)

// flushPatience is how long a request that may begin waits until the kernel has
// taken what says so: its key is held meanwhile.
const flushPatience = time.Second

// errUntaken: the peer does not take what is written to it.
var errUntaken = errors.New("link: the peer does not read")

// flush waits until the kernel has taken what was queued up to end. It fails when
// the queue is closed or ctx ends before, or after flushPatience; and at once while
// the kernel has taken nothing since that happened to another one.
func (q *queue) flush(ctx context.Context, end int64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.written < end && q.err == nil {
		q.writeNowLocked()
	}
	var patience <-chan time.Time
	for gone := false; !gone && q.written < end && q.err == nil && q.stuck != q.written; {
		if patience == nil {
			timer := time.NewTimer(flushPatience)
			defer timer.Stop()
			patience = timer.C
		}
		moved := q.moved.Over()
		q.mu.Unlock()
		late := false
		select {
		case <-moved:
		case <-patience:
			late = true
		case <-ctx.Done():
			gone = true
		}
		q.mu.Lock()
		if late && q.written < end {
			q.stuck = q.written
		}
	}
	switch {
	case q.written >= end:
		return nil
	case q.err != nil:
		return q.err
	}
	return errUntaken
}

// writeNowLocked writes as much of the queue as the kernel takes at once, unless a write is under
// way. Its caller thus need not wait for the writer, which writes the rest.
func (q *queue) writeNowLocked() {
	defer q.wakeLocked()
	if q.now == nil || q.held {
		return
	}
	b := q.takeLocked()
	q.mu.Unlock()
	n := q.now(b)
	q.mu.Lock()
	q.written += int64(n)
	q.putBackLocked(b)
	if n < len(b) {
		q.buf = slices.Concat(b[n:], q.buf)
	}
	q.moved.End()
}

// wakeLocked wakes the writer if there is something for it.
func (q *queue) wakeLocked() {
	if len(q.buf) > 0 && q.idle {
		q.idle = false
		q.wake <- struct{}{}
	}
}
