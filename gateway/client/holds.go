package client

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/internal/lease"
	"github.com/keyway-go/keyway/ring"
)

// holdings is the keys that a [Client] holds at other members, guarded by mu. While there are any,
// a timer runs tick, which renews holds that are due and cancels holds that are overdue. closed is
// final.
type holdings struct {
	client *Client
	base   time.Time // origin of the monotonic clock in lease.Instant
	ttl    time.Duration
	policy holder.Policy // of all locks

	ctx  context.Context // of calls to owners; ends with close
	stop context.CancelFunc

	closing chan struct{}  // closed by close
	wg      sync.WaitGroup // goroutines

	mu     sync.Mutex // guards what follows, and the holds' own
	closed bool
	all    map[*held]struct{}
	byKey  map[string]*held        // the one taken last of each key, while it is in all
	timer  *time.Timer             // of tick; nil while there is nothing to do
	pause  time.Duration           // until the timer runs tick again
	lines  map[lineKey]*callerLine // those with a call under way
	asking map[callee][]*held      // holds to ask about; each callee has a goroutine
}

// held is a key that is held at another member. The state machine lock decides whether it is
// renewed, lost or released; tick, the answers of owners and Unlock feed it under holder.mu.
type held struct {
	ref    holds.Ref
	key    string
	shared bool
	label  string
	holder *holdings
	line   *callerLine // of the callers that have it in turn; nil if one caller asked alone

	extending chan struct{} // full while the owner is asked for another lease

	// Guarded by holder.mu.
	lock   holder.Lock
	cancel context.CancelCauseFunc           // of its caller's work
	turns  *list.List                        // callers that get it next; may be nil
	gather *time.Timer                       // makes the next call for the line; nil if the turns do not delay it
	within map[*Lock]context.CancelCauseFunc // of calls within that work
	ended  bool                              // the work is over, and the last of those calls ends the hold
	owner  ring.Member
	peer   *send.Peer   // the owner, in use by this hold
	told   chan<- error // gets the result of [Lock.Unlock]; nil without a waiter
}

func (hs *holdings) init(c *Client, ttl time.Duration) {
	hs.client, hs.base, hs.ttl, hs.policy = c, time.Now(), ttl, holder.Policy{TTL: ttl, TurnsFor: holder.Never}
	hs.closing, hs.lines = make(chan struct{}), make(map[lineKey]*callerLine)
	hs.all, hs.byKey = make(map[*held]struct{}), make(map[string]*held)
	hs.asking = make(map[callee][]*held)
	hs.ctx, hs.stop = context.WithCancel(context.Background())
}

func (hs *holdings) now() lease.Instant { return lease.At(hs.base, time.Now()) }

// every is how soon a call to an owner that has failed is tried again, and how often holds
// of the session TTL are looked at.
func (hs *holdings) every() time.Duration { return hs.policy.Pause(hs.ttl) }

// errClosedHolder is the cause of a hold's context when [Client.Close] cancels it.
var errClosedHolder = fmt.Errorf("%w: the client was closed", gateway.ErrOwnershipLost)

// errLetGo is the cause of a hold's context when its caller unlocks.
var errLetGo = fmt.Errorf("client: the key was unlocked: %w", context.Canceled)

// start returns the Lock of a caller that begins to work with h and that token. It reports false if the caller has waited
// for a turn and others may have the key by now.
func (hs *holdings) start(ctx context.Context, h *held, token int64) (_ *Lock, begun bool) {
	inner, cancel := context.WithCancelCause(ctx)
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if h.cancel = cancel; hs.closed {
		h.lock.Close()
		cancel(errClosedHolder)
	}
	begun = h.lock.Begin(hs.now()) == holder.Begin
	hs.all[h], hs.byKey[h.key] = struct{}{}, h
	hs.lookLocked(h.lock.Pause())
	return &Lock{client: hs.client, key: h.key, token: token, ctx: &heldContext{inner, h, token}, held: h}, begun
}

// lookLocked has holds looked at after a pause, if not earlier.
func (hs *holdings) lookLocked(pause time.Duration) {
	switch {
	case hs.closed:
	case hs.timer == nil:
		hs.pause, hs.timer = pause, time.AfterFunc(pause, hs.tick)
	case pause < hs.pause:
		hs.pause = pause
		hs.timer.Reset(pause)
	}
}

// endHold ends the work of h's caller, and h once no call runs within that work. Either another caller takes over h, or
// the owner is asked to release it. told, unless it is nil, gets the result, which is known unless the owner is asked.
func (hs *holdings) endHold(h *held, told chan<- error) (asked bool) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h.cancel(errLetGo)
	if h.told, h.ended = told, true; len(h.within) == 0 {
		return hs.endLocked(h)
	}
	if h.lock.Left(hs.now(), h.lock.Token()) == 0 {
		h.tell(holder.TellNotOwner, nil)
	} else {
		h.tell(holder.TellReleased, nil) // now, since told may be awaited within the last of those calls
	}
	h.told = nil
	return false
}

// endWithin ends a call within the work of a hold's caller.
func (hs *holdings) endWithin(l *Lock) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h := l.held
	h.within[l](errLetGo)
	if delete(h.within, l); h.ended && len(h.within) == 0 {
		hs.endLocked(h)
	}
}

func (hs *holdings) endLocked(h *held) (asked bool) {
	if h.ended = false; hs.closed {
		h.lock.Close()
	}
	d := h.lock.End(hs.now(), h.turns != nil && h.turns.Len() > 0)
	if d == holder.Pass {
		h.tell(holder.TellReleased, nil)
		h.giveLocked()
		return false
	}
	if delete(hs.all, h); hs.byKey[h.key] == h {
		delete(hs.byKey, h.key)
	}
	hs.disbandLocked(h)
	if hs.releaseLocked(h, d, errUnlockClosed); d != holder.Release {
		h.peer.Leave()
	}
	return true
}

// remains returns for how long h lasts for its caller with that token without another renewal. It cancels the caller's work if
// the owner no longer vouches for h.
func (h *held) remains(token int64) time.Duration {
	h.holder.mu.Lock()
	defer h.holder.mu.Unlock()
	now := h.holder.now()
	h.obeyLocked(h.lock.Check(now))
	return h.lock.Left(now, token)
}

func (h *held) isWith(token int64) bool {
	h.holder.mu.Lock()
	defer h.holder.mu.Unlock()
	return h.lock.Has(token)
}

// heldContext is the context of a function that works with a key held elsewhere.
type heldContext struct {
	context.Context
	held  *held
	token int64
}

type heldKey struct{}

// Err implements [context.Context]. It compares the deadlines of all holds along c: a
// process that was stopped may have missed them.
func (c *heldContext) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	for along := c; along != nil; along, _ = along.Context.Value(heldKey{}).(*heldContext) {
		along.held.remains(along.token)
	}
	return c.Context.Err()
}

func (c *heldContext) Value(key any) any {
	if key == (heldKey{}) || key == holds.Along(c.held.key) && c.held.isWith(c.token) {
		return c
	}
	return c.Context.Value(key)
}

// lockAlong returns a Lock within the hold of key by hs that ctx belongs to, nil if there is none. Its context ends
// with the hold, even if ctx does not. The hold does not end before a call.
func (hs *holdings) lockAlong(ctx context.Context, key string, w want) (*Lock, error) {
	if ctx.Value(heldKey{}) == nil {
		return nil, nil
	}
	c, _ := ctx.Value(holds.Along(key)).(*heldContext)
	for c != nil && c.held.holder != hs {
		c, _ = c.Context.Value(holds.Along(key)).(*heldContext)
	}
	if c == nil {
		return nil, nil
	}
	h := c.held
	if h.shared && !w.shared {
		return nil, &holds.Refused{Why: gateway.ErrLocked, Key: key, Text: "is locked by the caller for reading: unlock it before you lock it for writing"}
	}
	l := &Lock{client: hs.client, key: key, token: c.token, ctx: ctx, held: h, within: true}
	inner, stop := context.WithCancelCause(ctx)
	hs.mu.Lock()
	defer hs.mu.Unlock()
	switch {
	case !h.lock.Has(c.token):
		stop(nil)
		return nil, nil
	case h.lock.Left(hs.now(), c.token) == 0:
		stop(nil)
		return nil, fmt.Errorf("%w: it is asked for within what held it", gateway.ErrOwnershipLost)
	case w.call:
		if h.within == nil {
			h.within = make(map[*Lock]context.CancelCauseFunc)
		}
		h.within[l] = stop
		l.ctx, l.free = &heldContext{inner, h, c.token}, func() { hs.endWithin(l) }
	default:
		l.ctx, l.free = &heldContext{inner, h, c.token}, endsWith(c, stop)
	}
	return l, nil
}

// endsWith has the context of a lock within another one end with that one's, and returns what ends it before.
func endsWith(outer context.Context, stop context.CancelCauseFunc) (unlock func()) {
	unhook := context.AfterFunc(outer, func() { stop(context.Cause(outer)) })
	return func() {
		unhook()
		stop(errLetGo)
	}
}

// stopLocked cancels what works with h.
func (h *held) stopLocked(cause error) {
	h.cancel(cause)
	for _, cancel := range h.within {
		cancel(cause)
	}
}

// obeyLocked cancels what works with h if the machine decides that, and returns what it has decided.
func (h *held) obeyLocked(d holder.Decision) holder.Decision {
	why := ""
	switch d {
	case holder.CancelOverdue:
		why = "has not confirmed it in time"
	case holder.CancelGone:
		why = "does not hold it any more"
	default:
		return d
	}
	h.holder.disbandLocked(h)
	h.stopLocked(fmt.Errorf("%w: key %q was held at worker %s (%s), which %s", gateway.ErrOwnershipLost, h.key, h.owner.Name, h.owner.Addr, why))
	return d
}

// tick cancels what is overdue, and renews what is due.
func (hs *holdings) tick() {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if len(hs.all) == 0 || hs.closed {
		hs.timer = nil
		return
	}
	now := hs.now()
	hs.pause = hs.every()
	for h := range hs.all {
		hs.pause = min(hs.pause, h.lock.Pause())
		switch h.obeyLocked(h.lock.Tick(now)) {
		case holder.Renew:
			hs.askLocked(callee{method: holds.Renew, peer: h.peer}, h)
		case holder.Seek:
			hs.askLocked(callee{method: holds.Renew, partition: h.ref.Partition}, h)
		}
	}
	hs.timer.Reset(hs.pause)
}

// close cancels all work with held keys. It waits for releases under way, but no longer than
// cancelled work may continue.
func (hs *holdings) close() {
	hs.mu.Lock()
	if !hs.closed {
		close(hs.closing)
	}
	hs.closed = true
	for h := range hs.all {
		h.lock.Close()
		h.stopLocked(errClosedHolder)
	}
	if hs.timer != nil {
		hs.timer.Stop()
	}
	hs.mu.Unlock()
	patience := time.AfterFunc(lease.Grace(hs.ttl), hs.stop)
	hs.wg.Wait()
	patience.Stop()
	hs.stop()
}
