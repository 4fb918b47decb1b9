package router

import (
	"container/list"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/lease"
)

// holder is the keys that a [Client] holds at other members. While there are any, a
// timer runs tick, which renews what is due and cancels what is overdue.
type holder struct {
	client *Client
	base   time.Time // origin of the monotonic clock in lease.Instant
	ttl    time.Duration

	ctx  context.Context // of calls to owners; ends with close
	stop context.CancelFunc

	closing chan struct{}  // closed by close
	wg      sync.WaitGroup // goroutines

	mu        sync.Mutex // guards what follows, and the holds' own
	closed    bool
	all       map[*held]struct{}
	byKey     map[string]*held            // of those of a key that was taken last, if it is one of all
	timer     *time.Timer                 // of tick; nil while there is nothing to do
	pause     time.Duration               // until the timer runs tick again
	lines     map[lineKey]*line           // those with a call under way
	following map[int]struct{}            // partitions whose owner is asked for, to renew holds there
	releasing map[releaseWay]*releaseList // those with a goroutine
}

// held is a key that is held at another member.
type held struct {
	id        holds.ID
	key       string
	partition int
	shared    bool
	label     string
	holder    *holder
	line      *line // of those who have it by turns; nil if it was asked for by one alone

	// Guarded by holder.mu.
	cancel    context.CancelCauseFunc
	token     int64         // of who has it now
	turns     *list.List    // who have it after him; may be nil
	next      int64         // token of the first of these
	left      int           // tokens there are for them
	term      time.Duration // of its lease, from each renewal on, at least
	shortest  time.Duration // that calls have asked for which may yet have their effect
	extending chan struct{} // is full while the owner is asked for another lease; nil if that has never been
	owner     ring.Member
	peer      *peer         // the owner, in use by this hold
	sent      lease.Instant // before the last call was sent that the owner has confirmed
	own       lease.Lease   // of the lock
	written   bool          // the store keeps it for own, which outlives the owner's session
	lease     lease.Lease   // own, as far as the owner vouches for it
	works     bool          // a caller works with it
	renewing  bool
	away      bool // its partition is to be looked for at another owner
	lost      bool
	ended     bool
}

func (hs *holder) init(c *Client, ttl time.Duration) {
	hs.client, hs.base, hs.ttl = c, time.Now(), ttl
	hs.closing, hs.lines = make(chan struct{}), make(map[lineKey]*line)
	hs.all, hs.byKey = make(map[*held]struct{}), make(map[string]*held)
	hs.following, hs.releasing = make(map[int]struct{}), make(map[releaseWay]*releaseList)
	hs.ctx, hs.stop = context.WithCancel(context.Background())
}

func (hs *holder) now() lease.Instant { return lease.At(hs.base, time.Now()) }

// every is how soon a call to an owner that has failed is tried again, and how often holds
// are looked at that are renewed once in due.
func (hs *holder) every() time.Duration { return pauseOf(hs.ttl) }

// due is the age at which a hold of the session TTL is renewed.
func (hs *holder) due() time.Duration { return hs.ttl / 5 }

// pauseOf returns how often holds with a lease of that length are looked at.
func pauseOf(term time.Duration) time.Duration { return max(term/50, time.Millisecond) }

// pauseLocked returns how often h is looked at.
func (h *held) pauseLocked() time.Duration { return pauseOf(min(h.term, h.holder.ttl)) }

// dueLocked is the age at which h is renewed. A long lease is renewed as often as one of the
// session TTL, so that its loss is soon known.
func (h *held) dueLocked() time.Duration { return min(h.term, h.holder.ttl) / 5 }

// extendLocked notes that the owner has confirmed h for a lease of that length when asked by a call sent at sent.
func (h *held) extendLocked(sent lease.Instant, term time.Duration, p holds.Promise) {
	if own := lease.New(sent, term); own.Cancel.Mono > h.own.Cancel.Mono { // the owner never shortens it
		h.own, h.written = own, term > h.holder.ttl
	}
	if h.sent, h.lease = sent, h.own; !h.written || p.Surrender == 0 {
		h.lease = h.own.Within(sent, p.Cancel, p.Surrender)
	}
}

// errClosedHolder is the cause with which what a client's function works for is
// cancelled by [Client.Close].
var errClosedHolder = fmt.Errorf("%w: the client was closed", gateway.ErrOwnershipLost)

// errLetGo is the cause with which the context of a hold ends that is over.
var errLetGo = fmt.Errorf("router: the key was unlocked: %w", context.Canceled)

// start returns the context in which a caller works with h held, with that token.
func (hs *holder) start(ctx context.Context, h *held, token int64) context.Context {
	inner, cancel := context.WithCancelCause(ctx)
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h.cancel, h.works = cancel, true
	if hs.closed {
		cancel(errClosedHolder)
	}
	hs.all[h], hs.byKey[h.key] = struct{}{}, h
	hs.lookLocked(h.pauseLocked())
	return &heldContext{inner, h, token}
}

// lookLocked has holds looked at after a pause, if not earlier.
func (hs *holder) lookLocked(pause time.Duration) {
	switch {
	case hs.closed:
	case hs.timer == nil:
		hs.pause, hs.timer = pause, time.AfterFunc(pause, hs.tick)
	case pause < hs.pause:
		hs.pause = pause
		hs.timer.Reset(pause)
	}
}

// end ends the work of h's caller. Another one goes on with h, which it reports, or its owner is told to end it, whose
// answer told gets, unless it is nil.
func (hs *holder) end(h *held, told chan<- error) (passed bool) {
	hs.mu.Lock()
	h.cancel(errLetGo)
	if hs.passLocked(h) {
		hs.mu.Unlock()
		return true
	}
	h.ended = true
	if delete(hs.all, h); hs.byKey[h.key] == h {
		delete(hs.byKey, h.key)
	}
	hs.disbandLocked(h)
	hs.mu.Unlock()
	hs.release(h.peer, letGo{Ref: h.ref(), key: h.key, until: h.lease.Surrender, told: told}) // none of which changes any more
	return false
}

// remains returns for how long h lasts for its caller with that token without another renewal.
func (h *held) remains(token int64) time.Duration {
	h.holder.mu.Lock()
	defer h.holder.mu.Unlock()
	now := h.holder.now()
	if h.checkLocked(now); h.lost || !h.isWithLocked(token) {
		return 0
	}
	return h.lease.Surrender.Left(now)
}

// isWithLocked reports whether the caller with that token has not ended.
func (h *held) isWithLocked(token int64) bool { return !h.ended && h.token == token }

func (h *held) isWith(token int64) bool {
	h.holder.mu.Lock()
	defer h.holder.mu.Unlock()
	return h.isWithLocked(token)
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
		along.held.check()
	}
	return c.Context.Err()
}

// Value implements [context.Context].
func (c *heldContext) Value(key any) any {
	if key == (heldKey{}) || key == holds.Along(c.held.key) && c.held.isWith(c.token) {
		return c
	}
	return c.Context.Value(key)
}

// heldAlong returns the hold of key by hs that ctx belongs to, with the token of who has it there, nil if there is none.
func (hs *holder) heldAlong(ctx context.Context, key string) (*held, int64) {
	for {
		c, ok := ctx.Value(heldKey{}).(*heldContext)
		if !ok {
			return nil, 0
		}
		if c.held.key == key && c.held.holder == hs && c.held.isWith(c.token) {
			return c.held, c.token
		}
		ctx = c.Context
	}
}

func (h *held) check() {
	h.holder.mu.Lock()
	defer h.holder.mu.Unlock()
	h.checkLocked(h.holder.now())
}

// checkLocked cancels what works with h if nobody vouches for it any more.
func (h *held) checkLocked(now lease.Instant) {
	if h.lease.Cancel.Passed(now) {
		h.loseLocked("has not confirmed it in time")
	}
}

func (h *held) loseLocked(why string) {
	if !h.lost {
		h.lost = true
		h.holder.disbandLocked(h)
		h.cancel(fmt.Errorf("%w: key %q was held at worker %s (%s), which %s", gateway.ErrOwnershipLost, h.key, h.owner.Name, h.owner.Addr, why))
	}
}

// tick cancels what is overdue, and renews what is due.
func (hs *holder) tick() {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if len(hs.all) == 0 || hs.closed {
		hs.timer = nil
		return
	}
	now := hs.now()
	due, moved := make(map[*peer][]*held), make(map[int][]*held)
	hs.pause = hs.every()
	for h := range hs.all {
		hs.pause = min(hs.pause, h.pauseLocked())
		h.checkLocked(now)
		_, following := hs.following[h.partition]
		if h.lost || h.renewing || now.Mono-h.sent.Mono < h.dueLocked() || h.away && following {
			continue
		}
		h.renewing = true
		if h.away {
			moved[h.partition] = append(moved[h.partition], h)
		} else {
			due[h.peer] = append(due[h.peer], h)
		}
	}
	for p, list := range due {
		for part := range slices.Chunk(list, holds.MaxRefs) {
			hs.wg.Go(func() { _ = hs.renew(p, part) })
		}
	}
	for partition, list := range moved {
		hs.following[partition] = struct{}{}
		hs.wg.Go(func() { hs.follow(partition, list) })
	}
	hs.timer.Reset(hs.pause)
}

// renew asks an owner to let its holds go on.
func (hs *holder) renew(p *peer, list []*held) error {
	sent := hs.now()
	ctx, cancel := context.WithTimeout(hs.ctx, hs.due())
	defer cancel()
	status, body, err := p.call(ctx, &link.Request{Method: holds.Renew}, holds.AppendRefs(nil, refsOf(list)))
	var answer holds.Renewal
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("router: renewing holds: %d %s", status, body)
	}
	if err == nil {
		answer, err = holds.ParseRenewal(body, len(list))
	}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for i, h := range list {
		h.renewing = false
		if err != nil { // again at the next tick
			h.away = hs.isAway(h.partition, p)
			continue
		}
		h.takeLocked(answer.States[i], sent, h.term, answer.Promise)
	}
	return err
}

// takeLocked takes what the owner of h answers to a call by which h was renewed, for a lease of that
// length, and which was sent at sent.
func (h *held) takeLocked(state holds.State, sent lease.Instant, term time.Duration, p holds.Promise) {
	if h.works { // a renewal that comes too late may be that of another owner, after others had the key
		h.checkLocked(h.holder.now())
	}
	switch {
	case h.lost || h.ended:
	case state == holds.Held:
		h.extendLocked(sent, term, p)
	case state == holds.Elsewhere:
		h.away = true
	default:
		h.loseLocked("does not hold it any more")
	}
}

func refsOf(list []*held) []holds.Ref {
	refs := make([]holds.Ref, 0, len(list))
	for _, h := range list {
		refs = append(refs, h.ref())
	}
	return refs
}

func (h *held) ref() holds.Ref { return holds.Ref{ID: h.id, Partition: h.partition} }

// close cancels what works with keys that are held, and waits until those that have
// been let go are free, for as long as cancelled work may go on at most.
func (hs *holder) close() {
	hs.mu.Lock()
	if !hs.closed {
		close(hs.closing)
	}
	hs.closed = true
	for h := range hs.all {
		h.cancel(errClosedHolder)
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

// call makes a call about holds to the worker, and returns the answer's status and body. All of these may be made again.
func (p *peer) call(ctx context.Context, req *link.Request, body []byte) (status int, answer []byte, err error) {
	req.Repeatable = true
	return p.ask(ctx, req, body, holds.MaxBody)
}
