package link

import (
	"io"
	"runtime"
	"sync"

	"github.com/keyway-go/keyway/internal/wake"
)

const (
	highWater = 256 << 10 // bodies wait while more than this is queued
	hardLimit = 4 << 20   // nothing is queued beyond this: the peer has stopped reading
	writeSize = 256 << 10 // largest single write, so that progress can be seen
)

// queue collects the frames of all streams of a connection; one goroutine writes everything
// collected with a single system call. Before each write it yields to the other goroutines, so that
// those about to queue a frame do so first. A lone frame still goes out at once. A caller that
// flushes writes itself if no write is under way. The queue accepts frames until err is set, which
// is final; mu guards all fields but now.
type queue struct {
	mu      sync.Mutex
	buf     []byte
	spare   []byte
	added   int64         // bytes ever queued
	written int64         // bytes that the kernel took
	held    bool          // a goroutine writes the former content of buf
	idle    bool          // the writer waits for wake
	wake    chan struct{} // capacity 1
	room    wake.Round    // ends when buf is taken
	err     error         // why nothing can be queued any more
	writing uint64        // odd while a write is under way; goes up with each
	moved   wake.Round    // ends when the kernel has taken more, or the queue is closed
	stuck   int64         // written when a flush last ran out of patience; -1 for never

	now func([]byte) int // writes what the kernel takes at once, and returns how much that is; nil if there is no such way
}

func newQueue() *queue {
	return &queue{wake: make(chan struct{}, 1), idle: true, stuck: -1}
}

// add queues frames at once. It returns the position in the byte stream at
// which they end: until written is there, the peer cannot have all of them.
func (q *queue) add(frames []byte) (end int64, err error) {
	q.mu.Lock()
	defer q.unlock()
	return q.stageLocked(frames)
}

// stage is add for a caller that then calls flush, which sends the frames.
func (q *queue) stage(frames []byte) (end int64, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.stageLocked(frames)
}

func (q *queue) stageLocked(frames []byte) (end int64, err error) {
	switch {
	case q.err != nil:
		return 0, q.err
	case len(q.buf)+len(frames) > hardLimit:
		return 0, ErrTooManyStreams
	}
	q.buf = append(q.buf, frames...)
	q.added += int64(len(frames))
	return q.added, nil
}

// push queues a and b back to back once there is room for more body. Without wait it is not ok if
// there is none now.
func (q *queue) push(a, b []byte, wait bool) (ok bool, err error) {
	q.mu.Lock()
	defer q.unlock()
	for q.err == nil && len(q.buf) > highWater {
		if !wait {
			return false, nil
		}
		room := q.room.Over()
		q.mu.Unlock()
		<-room
		q.mu.Lock()
	}
	if q.err != nil {
		return false, q.err
	}
	q.buf = append(append(q.buf, a...), b...)
	q.added += int64(len(a) + len(b))
	return true, nil
}

// unlock releases mu, and then wakes the writer if there is something for it.
func (q *queue) unlock() {
	wake := len(q.buf) > 0 && q.idle
	if wake {
		q.idle = false
	}
	q.mu.Unlock()
	if wake {
		q.wake <- struct{}{}
	}
}

// takeFrames returns the queued frames, nil if there are none or another goroutine writes. last, its
// former result, has been written.
func (q *queue) takeFrames(last []byte) []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	if last != nil {
		q.putBackLocked(last)
	}
	if q.held || len(q.buf) == 0 {
		q.idle = true
		return nil
	}
	return q.takeLocked()
}

// takeLocked returns what is queued. Nobody else takes anything until putBackLocked.
func (q *queue) takeLocked() []byte {
	b := q.buf
	q.buf, q.spare, q.held = q.spare, nil, true
	q.room.End()
	return b
}

// putBackLocked returns the memory of takeLocked's result for reuse.
func (q *queue) putBackLocked(b []byte) {
	q.held = false
	if cap(b) <= 4*highWater {
		q.spare = b[:0]
	}
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
			if b = q.takeFrames(b); b == nil {
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
		q.moved.End()
		q.mu.Unlock()
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// close refuses everything from now on and wakes all waiters.
func (q *queue) close(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err == nil {
		q.err = err
	}
	q.room.End()
	q.moved.End()
}

// progress returns a number that stays the same, and odd, for as long as one
// write is stuck.
func (q *queue) progress() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.writing
}

func (q *queue) handed() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.written
}
