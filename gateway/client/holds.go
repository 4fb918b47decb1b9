package client

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/internal/holding"
	"github.com/keyway-go/keyway/internal/lease"
	"github.com/keyway-go/keyway/ring"
)

// holdings is the keys that a [Client] holds at other members. The mutex of the Set guards it.
type holdings struct {
	holding.Set
	client *Client

	ctx  context.Context // of calls to owners; ends with close
	stop context.CancelFunc

	closing chan struct{}  // closed by close
	wg      sync.WaitGroup // goroutines

	// Guarded by the mutex.
	byKey  map[string]*held        // the one taken last of each key, until its work has ended
	lines  map[lineKey]*callerLine // those with a call under way
	asking map[callee][]*held      // holds to ask about; each callee has a goroutine
}

// held is a key that is held at another member.
type held struct {
	holding.Hold
	ref    holds.Ref
	key    string
	label  string
	holder *holdings
	line   *callerLine // of the callers that have it in turn; nil if one caller asked alone

	// Guarded by the mutex of holder.
	turns  *list.List  // callers that get it next; may be nil
	gather *time.Timer // makes the next call for the line; nil if the turns do not delay it
	owner  ring.Member
	peer   *send.Peer   // the owner, in use by this hold
	told   chan<- error // gets the result of [Lock.Unlock]; nil without a waiter
}

func (hs *holdings) init(c *Client, ttl time.Duration) {
	hs.Init(holder.Policy{TTL: ttl, TurnsFor: holder.Never}, nil)
	hs.client, hs.closing, hs.lines = c, make(chan struct{}), make(map[lineKey]*callerLine)
	hs.byKey, hs.asking = make(map[string]*held), make(map[callee][]*held)
	hs.ctx, hs.stop = context.WithCancel(context.Background())
}

// every is how soon a call to an owner that has failed is tried again, and how often holds
// of the session TTL are looked at.
func (hs *holdings) every() time.Duration { return hs.Policy.Pause(hs.Policy.TTL) }

// errClosedHolder is the cause of a hold's context when [Client.Close] cancels it.
var errClosedHolder = fmt.Errorf("%w: the client was closed", gateway.ErrOwnershipLost)

// errLetGo is the cause of a hold's context when its caller unlocks.
var errLetGo = fmt.Errorf("client: the key was unlocked: %w", context.Canceled)

// start returns the Lock of a caller that begins to work with h. It reports false if the caller has waited for a turn and
// others may have the key by now.
func (hs *holdings) start(ctx context.Context, h *held) (_ *Lock, begun bool) {
	hs.Lock()
	defer hs.Unlock()
	use, begun := h.BeginLocked(ctx, true)
	if begun {
		hs.byKey[h.key] = h
	}
	return &Lock{client: hs.client, key: h.key, token: use.Token, use: use}, begun
}

// endUse ends the use of a hold. With the last, another caller takes over the hold, or the owner is asked to release it.
// told, unless it is nil, gets the result, which is known unless the owner is asked.
func (hs *holdings) endUse(u *holding.Use, told chan<- error) (asked bool) {
	hs.Lock()
	defer hs.Unlock()
	last, err := u.EndLocked(errLetGo)
	if last {
		h := u.Backend().(*held)
		h.told = told
		return hs.endLocked(h)
	}
	if told != nil {
		told <- holding.NotOwner(err) // now, since told may be awaited within the last use
	}
	return false
}

// giveBack ends a hold without a caller.
func (hs *holdings) giveBack(h *held) {
	hs.Lock()
	defer hs.Unlock()
	hs.endLocked(h)
}

func (hs *holdings) endLocked(h *held) (asked bool) {
	d := h.EndLocked(hs.Now(), h.turns != nil && h.turns.Len() > 0)
	if d == holder.Pass {
		h.tell(holder.TellReleased, nil)
		h.giveLocked()
		return false
	}
	h.departLocked()
	if hs.releaseLocked(h, d, errUnlockClosed); d != holder.Release {
		h.peer.Leave()
	}
	return true
}

// departLocked has nobody else get h. Callers that wait for it ask anew.
func (h *held) departLocked() {
	if h.holder.byKey[h.key] == h {
		delete(h.holder.byKey, h.key)
	}
	h.holder.disbandLocked(h)
}

// Renew implements [holding.Backend].
func (h *held) Renew(d holder.Decision) {
	to := callee{method: holds.Renew, partition: h.ref.Partition}
	if d == holder.Renew {
		to = callee{method: holds.Renew, peer: h.peer}
	}
	h.holder.askLocked(to, h)
}

// Lost implements [holding.Backend].
func (h *held) Lost(d holder.Decision) error {
	why := "does not hold it any more"
	switch {
	case h.holder.Closed:
		return errClosedHolder // callers that wait see that by themselves
	case d == holder.CancelOverdue:
		why = "has not confirmed it in time"
	}
	h.departLocked()
	return fmt.Errorf("%w: key %q was held at worker %s (%s), which %s", gateway.ErrOwnershipLost, h.key, h.owner.Name, h.owner.Addr, why)
}

// lockAlong returns a Lock within the hold of key by hs that ctx belongs to, nil if there is none. The hold does not end
// before a call.
func (hs *holdings) lockAlong(ctx context.Context, key string, w want) (*Lock, error) {
	use, err := hs.Within(ctx, w.shared, key)
	switch {
	case errors.Is(err, holding.ErrShared):
		return nil, &holds.Refused{Why: gateway.ErrLocked, Key: key, Text: err.Error()}
	case err != nil || use.Tenure == nil:
		return nil, err
	}
	return &Lock{client: hs.client, key: key, token: use.Token, use: use}, nil
}

// close cancels all work with held keys. It waits for releases under way, but no longer than
// cancelled work may continue.
func (hs *holdings) close() {
	hs.Lock()
	if !hs.Closed {
		close(hs.closing)
	}
	hs.CloseLocked()
	hs.Unlock()
	patience := time.AfterFunc(lease.Grace(hs.Policy.TTL), hs.stop)
	hs.wg.Wait()
	patience.Stop()
	hs.stop()
}
