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
		q.unlock()
		q.mu.Lock()
	}
	if q.written < end {
		q.awaitKernelLocked(ctx, end)
	}
	switch {
	case q.written >= end:
		return nil
	case q.err != nil:
		return q.err
	}
	return errUntaken
}

func (q *queue) awaitKernelLocked(ctx context.Context, end int64) {
	patience := time.NewTimer(flushPatience)
	defer patience.Stop()
	for ctx.Err() == nil && q.written < end && q.err == nil && q.stuck != q.written {
		moved, late := q.moved.Over(), false
		q.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
		case <-patience.C:
			late = true
		}
		q.mu.Lock()
		if late && q.written < end {
			q.stuck = q.written
		}
	}
}

// writeNowLocked writes as much of the queue as the kernel takes at once, unless a write is under
// way. Its caller thus need not wait for the writer, which writes the rest.
func (q *queue) writeNowLocked() {
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
