package lock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// lockLine is a key that callers of this process hold or want. One of them
// contends for it in Redis while the others queue here. A line is in the
// Locker's map from its first caller to its last; the Locker's mu guards it.
type lockLine struct {
	key     string
	held    bool // by a caller of this process; else one contends for it
	waiters []*lockWaiter
}

// lockWaiter is a caller in a line.
type lockWaiter struct {
	want  want
	turn  chan *Lock // 1 buffered: gets the lock that is handed over, or nil when it is the waiter's turn to contend
	given bool       // turn was sent
}

// queue takes the lock of one key, with at most one contender per key.
func (l *Locker) queue(w want) (*Lock, error) {
	key := w.names[0]
	l.mu.Lock()
	line := l.lines[key]
	if line == nil {
		line = &lockLine{key: key}
		l.lines[key] = line
		l.mu.Unlock()
		return l.lead(w, line)
	}
	if !w.wait {
		l.mu.Unlock()
		return nil, fmt.Errorf("%w: %q, in this process", locking.ErrLocked, key)
	}
	me := &lockWaiter{want: w, turn: make(chan *Lock, 1)}
	line.waiters = append(line.waiters, me)
	l.mu.Unlock()

	select {
	case turn := <-me.turn:
		return l.begin(w, line, turn)
	case <-w.ctx.Done():
		return nil, l.quit(line, me, context.Cause(w.ctx))
	case <-l.closing:
		return nil, l.quit(line, me, ErrClosed)
	}
}

// begin takes a waiter's turn. A done context always loses: the turn then
// goes to the next.
func (l *Locker) begin(w want, line *lockLine, turn *Lock) (*Lock, error) {
	switch {
	case w.ctx.Err() != nil:
		l.decline(line, turn)
		return nil, context.Cause(w.ctx)
	case turn == nil:
		return l.lead(w, line)
	case !turn.begin(): // it was stopped, and others may have the lock by now
		l.decline(line, turn)
		return l.queue(w)
	}
	l.acquired(w, turn, true)
	return turn, nil
}

func (k *Lock) begin() bool {
	h := k.tenure.hold
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lock.Begin(h.l.now()) == holder.Begin
}

// quit takes a waiter out of the line, and passes on what it was given in
// this very moment.
func (l *Locker) quit(line *lockLine, me *lockWaiter, cause error) error {
	l.mu.Lock()
	given := me.given
	if i := slices.Index(line.waiters, me); i >= 0 {
		line.waiters = slices.Delete(line.waiters, i, i+1)
	}
	l.mu.Unlock()
	if given {
		l.decline(line, <-me.turn)
	}
	return cause
}

func (l *Locker) decline(line *lockLine, turn *Lock) {
	if turn == nil {
		l.next(line)
		return
	}
	l.spawn(func() { _ = turn.Unlock(context.Background()) })
}

// lead contends for the line in Redis.
func (l *Locker) lead(w want, line *lockLine) (*Lock, error) {
	k, err := l.contend(w, line)
	if err != nil {
		l.next(line)
	}
	return k, err
}

// next lets the next waiter contend, or ends the line, if there is one.
func (l *Locker) next(line *lockLine) {
	if line == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	line.held = false
	if me := line.popLocked(); me != nil {
		me.turn <- nil
		return
	}
	delete(l.lines, line.key)
}

// popLocked takes the first waiter.
func (line *lockLine) popLocked() *lockWaiter {
	if len(line.waiters) == 0 {
		return nil
	}
	me := line.waiters[0]
	line.waiters[0] = nil
	line.waiters = line.waiters[1:]
	me.given = true
	return me
}

// yield lets the next waiter contend after others had a chance, when they
// are known to wait: else a process with many callers starves them. They need
// about as long to take the lock as its release has taken.
func (l *Locker) yield(line *lockLine, others bool, sent time.Time) {
	if line == nil || !others {
		l.next(line)
		return
	}
	pause := max(2*time.Since(sent), time.Millisecond)
	l.spawn(func() {
		sleep(min(pause+rand.N(pause), l.cfg.TTL/4), l.closing)
		l.next(line)
	})
}
