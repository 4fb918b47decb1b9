package client

import (
	"container/list"
	"context"
	"errors"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/internal/routing"
)

// callerLine is the callers of one process that wait for a lock at another member while a call for one or
// several of them is under way. When the call has ended, one further call asks for all callers that
// arrived meanwhile. The owner reserves a token for each. The callers work one after the other with
// one hold, which passes from Unlock to the next caller without a call. The next call is made when
// the last of them begins, to include callers that return, but no later than after gather.
//
// A call takes its place in the owner's queue after all of its callers have arrived. It therefore
// overtakes no caller that asked before them.
type callerLine struct {
	lineKey
	waiting list.List // of *callerTurn
}

// gather is for how long a call waits for more callers while others have the key. It is longer than a call to an owner
// takes, and shorter than what people call waiting.
const gather = time.Millisecond

// lineKey is what those of a line want.
type lineKey struct {
	key   string
	ttl   time.Duration
	label string
}

// mostInLine bounds a line: a caller that finds it that long asks alone.
const mostInLine = 1024

// longestInLine bounds the wait for a turn of a caller whose wait the owner bounds. Only the owner knows its bound.
const longestInLine = 30 * time.Second

// callerTurn is a caller's place. It is first in a line, then in the call for the line's callers, then
// behind the caller that works with their hold. A caller that gives up removes its turn from at.
type callerTurn struct {
	traced  context.Context // with the span of its call, if there is one
	settled chan struct{}   // closed when the caller has the key, or err is set

	// Guarded by the mutex of holdings.
	at    *list.List // the list that it waits in; nil once it is settled
	place *list.Element
	left  func() // called when at becomes empty because the caller leaves; may be nil
	held  *held  // the hold by which the caller has the key
	err   error
}

// moveLocked moves t to another list, at its end or its front.
func (t *callerTurn) moveLocked(to *list.List, front bool, left func()) {
	if t.at != nil {
		t.at.Remove(t.place)
	}
	if t.at, t.left = to, left; front {
		t.place = to.PushFront(t)
	} else {
		t.place = to.PushBack(t)
	}
}

// settleLocked ends the wait of t, with an error or, if h is not nil, with the key.
func (t *callerTurn) settleLocked(h *held, err error) {
	t.at.Remove(t.place)
	t.at, t.place, t.left = nil, nil, nil
	t.held, t.err = h, err
	close(t.settled)
}

func settleAllLocked(waiting *list.List, err error) {
	for waiting.Len() > 0 {
		waiting.Front().Value.(*callerTurn).settleLocked(nil, err)
	}
}

// standsInLine reports whether a caller waits together with others here.
func (c *Client) standsInLine(ctx context.Context, key string, w want) bool {
	if !w.inLine || c.local == nil {
		return w.inLine
	}
	t, ok := c.workers.Routes.Owner(c.workers.Ring.Partition(key))
	own := ok && c.isOwn(t, w)
	return !own && len(c.local.Baggage(ctx, nil)) == 0 // the owner checks if a caller that holds keys would deadlock with itself
}

// enter decides how a caller asks for a key. It returns a new line, which the caller must leave after its call; or a place
// in an existing line; or neither, if the caller asks alone.
func (hs *holdings) enter(traced context.Context, k lineKey) (l *callerLine, t *callerTurn) {
	hs.Lock()
	defer hs.Unlock()
	switch l = hs.lines[k]; {
	case hs.Closed, l != nil && l.waiting.Len() >= mostInLine:
		return nil, nil
	case l == nil:
		l = &callerLine{lineKey: k}
		hs.lines[k] = l
		return l, nil
	}
	t = &callerTurn{traced: traced, settled: make(chan struct{})}
	t.moveLocked(&l.waiting, false, nil)
	return nil, t
}

// leaveLocked ends the call of a line, with an error or nil. A call for the callers that wait is made now. If no owner can
// be reached, each of them asks alone instead, for as long as its own wait lasts.
func (hs *holdings) leaveLocked(l *callerLine, err error) {
	if _, unreachable := errors.AsType[*routing.UnreachableError](err); unreachable {
		settleAllLocked(&l.waiting, errAskAlone)
	}
	if l.waiting.Len() == 0 || hs.Closed {
		delete(hs.lines, l.lineKey)
		return
	}
	ctx, cancel := context.WithCancel(hs.ctx)
	together, traced := new(list.List), l.waiting.Front().Value.(*callerTurn).traced
	for l.waiting.Len() > 0 && together.Len() < holds.MaxTurns {
		l.waiting.Front().Value.(*callerTurn).moveLocked(together, false, cancel)
	}
	turns := together.Len() - 1
	hs.wg.Go(func() {
		defer cancel()
		hs.askTogether(ctx, traced, l, together, turns)
	})
}

// Errors after which a caller asks again, in a line or (errAskAlone) alone.
var (
	errAskAgain = errors.New("client: a call for a key was in vain")
	errAskAlone = errors.New("client: a call for others has found nobody")
)

// askTogether asks the owner for several waiters, within the span of the first, and gives the first
// of them the key.
func (hs *holdings) askTogether(ctx, traced context.Context, l *callerLine, together *list.List, turns int) {
	a := &acquisition{want: want{ttl: l.ttl, label: l.label}, client: hs.client, ctx: ctx, traced: traced, key: l.key, id: holds.NewID(), line: l, turns: turns}
	err := a.acquire()
	hs.Lock()
	leftAll := err == nil && together.Len() == 0
	switch {
	case err != nil:
		settleAllLocked(together, err)
	case !leftAll:
		a.held.turns = together
		a.held.Lock.Give()
		a.held.giveLocked()
	}
	if err == nil && together.Len() > 0 {
		a.held.gather = time.AfterFunc(gather, func() {
			hs.Lock()
			defer hs.Unlock()
			hs.leaveLocked(l, nil)
		})
	} else {
		hs.leaveLocked(l, err)
	}
	hs.Unlock()
	if leftAll {
		a.giveBack()
	}
}

// gatheredLocked has the call made that waits for the turns of h, if there is one.
func (hs *holdings) gatheredLocked(h *held) {
	if h.gather != nil && h.gather.Stop() {
		hs.leaveLocked(h.line, nil)
	}
}

// giveLocked gives the key to the first that waits for a turn of h.
func (h *held) giveLocked() {
	h.turns.Front().Value.(*callerTurn).settleLocked(h, nil)
	if h.turns.Len() == 0 {
		h.holder.gatheredLocked(h)
	}
}

// disbandLocked moves callers that wait for a turn of h, which gives none any more, to the front of their line, for
// another call.
func (hs *holdings) disbandLocked(h *held) {
	defer hs.gatheredLocked(h)
	if h.turns == nil || h.turns.Len() == 0 {
		return
	}
	l, waits := hs.lines[h.line.lineKey]
	if !waits {
		l = h.line
		hs.lines[l.lineKey] = l
	}
	for h.turns.Len() > 0 {
		h.turns.Back().Value.(*callerTurn).moveLocked(&l.waiting, true, nil)
	}
	if !waits {
		hs.leaveLocked(l, nil)
	}
}

// takeTurn waits for the turn of a caller, and begins it.
func (c *Client) takeTurn(wait, ctx context.Context, w want, t *callerTurn) (*Lock, error) {
	hs := &c.holder
	var tooLong <-chan time.Time
	if w.call {
		tooLong = time.After(longestInLine)
	}
	select {
	case <-t.settled:
	case <-wait.Done():
	case <-tooLong:
		hs.giveUp(t)
		return nil, errAskAlone
	case <-hs.closing:
		hs.giveUp(t)
		return nil, errClientClosed
	}
	switch {
	case wait.Err() != nil:
		hs.giveUp(t)
		return nil, context.Cause(wait)
	case t.err != nil: // it is settled: nothing of it changes any more
		return nil, t.err
	}
	l, begun := hs.start(ctx, t.held)
	if !begun {
		l.release(nil)
		return nil, errAskAgain
	}
	return l, nil
}

// giveUp ends the wait of a caller.
func (hs *holdings) giveUp(t *callerTurn) {
	hs.Lock()
	h := t.held
	if t.at != nil {
		at, left := t.at, t.left
		at.Remove(t.place)
		if t.at = nil; at.Len() == 0 && left != nil {
			left()
		}
	}
	hs.Unlock()
	if h != nil {
		hs.giveBack(h)
	}
}
