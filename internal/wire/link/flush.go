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

// flush is the wait of a goroutine for the kernel to take what is queued up to end.
type flush struct {
	end  int64
	done chan struct{} // capacity 1
}

// flush waits until the kernel has taken what was queued up to end. It fails when
// the queue is closed or ctx ends before, or after flushPatience; and at once while
// the kernel has taken nothing since that happened to another one.
func (q *queue) flush(ctx context.Context, end int64) error {
	q.mu.Lock()
	if q.written < end && q.err == nil {
		q.writeNowLocked()
	}
	if q.written >= end || q.err != nil || q.stuck == q.written {
		defer q.mu.Unlock()
		return q.flushErrorLocked(end)
	}
	f := &flush{end: end, done: make(chan struct{}, 1)}
	q.flushes = append(q.flushes, f)
	q.mu.Unlock()
	patience := time.NewTimer(flushPatience)
	defer patience.Stop()
	late := false
	select {
	case <-f.done:
	case <-ctx.Done():
	case <-patience.C:
		late = true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.flushes = slices.DeleteFunc(q.flushes, func(other *flush) bool { return other == f })
	if late && q.written < end {
		q.stuck = q.written
	}
	return q.flushErrorLocked(end)
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
	q.flushedLocked()
}

// wakeLocked wakes the writer if there is something for it.
func (q *queue) wakeLocked() {
	if len(q.buf) > 0 && q.idle {
		q.idle = false
		q.wake <- struct{}{}
	}
}

// flushErrorLocked returns why the kernel has not taken all up to end, nil if it has.
func (q *queue) flushErrorLocked(end int64) error {
	switch {
	case q.written >= end:
		return nil
	case q.err != nil:
		return q.err
	}
	return errUntaken
}

func (q *queue) flushedLocked() {
	q.flushes = slices.DeleteFunc(q.flushes, func(f *flush) bool {
		over := f.end <= q.written || q.err != nil
		if over {
			f.done <- struct{}{}
		}
		return over
	})
}
