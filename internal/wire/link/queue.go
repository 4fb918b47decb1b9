package link

import (
	"io"
	"runtime"
	"sync"
)

const (
	highWater = 256 << 10 // bodies wait while more than this is queued
	hardLimit = 4 << 20   // nothing is queued beyond this: the peer has stopped reading
	writeSize = 256 << 10 // largest single write, so that progress can be seen
)

// queue collects the frames of all streams of a connection, and one goroutine
// writes whatever has been collected with a single system call. It yields to
// the other goroutines before each write, so that those that are about to
// queue a frame do so first: a lone frame goes out at once, and under load
// one write carries the frames of everyone who was ready to run.
type queue struct {
	mu      sync.Mutex
	buf     []byte
	spare   []byte
	added   int64         // bytes ever queued
	written int64         // bytes that the kernel took
	idle    bool          // the writer waits for wake
	wake    chan struct{} // capacity 1
	room    chan struct{} // closed when buf is taken; nil while nobody waits
	err     error         // why nothing can be queued any more
	writing uint64        // odd while a write is under way; goes up with each
	flushes []*flush      // that wait for the kernel
	stuck   int64         // written when a flush last ran out of patience; -1 for never
}

func newQueue() *queue {
	return &queue{wake: make(chan struct{}, 1), idle: true, stuck: -1}
}

// add queues frames at once. It returns the position in the byte stream at
// which they end: until written is there, the peer cannot have all of them.
func (q *queue) add(frames []byte) (end int64, err error) {
	q.mu.Lock()
	if q.err != nil {
		defer q.mu.Unlock()
		return 0, q.err
	}
	if len(q.buf)+len(frames) > hardLimit {
		defer q.mu.Unlock()
		return 0, ErrTooManyStreams
	}
	return q.appendLocked(frames, nil), nil
}

// push queues a and b back to back as soon as there is room for more body.
func (q *queue) push(a, b []byte) error {
	for {
		q.mu.Lock()
		if q.err != nil {
			defer q.mu.Unlock()
			return q.err
		}
		if len(q.buf) <= highWater {
			q.appendLocked(a, b)
			return nil
		}
		if q.room == nil {
			q.room = make(chan struct{})
		}
		room := q.room
		q.mu.Unlock()
		<-room
	}
}

// appendLocked appends to buf and lets the writer know. It releases q.mu.
func (q *queue) appendLocked(a, b []byte) (end int64) {
	q.buf = append(q.buf, a...)
	q.buf = append(q.buf, b...)
	q.added += int64(len(a) + len(b))
	end = q.added
	idle := q.idle
	q.idle = false
	q.mu.Unlock()
	if idle {
		q.wake <- struct{}{}
	}
	return end
}

// take returns what is queued, nil if there is nothing. last, what it returned
// before, is filled anew.
func (q *queue) take(last []byte) []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	if last != nil && cap(last) <= 4*highWater {
		q.spare = last[:0]
	}
	if len(q.buf) == 0 {
		q.idle = true
		return nil
	}
	b := q.buf
	q.buf, q.spare = q.spare, nil
	if q.room != nil {
		close(q.room)
		q.room = nil
	}
	return b
}

// run writes to w until a write fails or done is closed.
func (q *queue) run(w io.Writer, done <-chan struct{}) error {
	var b []byte
	for {
		select {
		case <-q.wake:
		case <-done:
			return nil
		}
		for {
			runtime.Gosched()
			if b = q.take(b); b == nil {
				break
			}
			if err := q.write(w, b); err != nil {
				return err
			}
		}
	}
}

func (q *queue) write(w io.Writer, b []byte) error {
	for len(b) > 0 {
		q.mu.Lock()
		q.writing++
		q.mu.Unlock()
		n, err := w.Write(b[:min(len(b), writeSize)])
		q.mu.Lock()
		q.writing++
		q.written += int64(n)
		if len(q.flushes) > 0 {
			q.flushedLocked()
		}
		q.mu.Unlock()
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// close refuses everything from now on and wakes all who wait.
func (q *queue) close(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err == nil {
		q.err = err
	}
	if q.room != nil {
		close(q.room)
		q.room = nil
	}
	q.flushedLocked()
}

// progress returns a number that stays the same, and odd, for as long as one
// write is stuck.
func (q *queue) progress() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.writing
}

// handed returns how many bytes the kernel has taken.
func (q *queue) handed() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.written
}
