package worker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// serve answers a call about locks.
func (ls *locks) serve(w *link.ResponseWriter, r *link.ServerRequest, body []byte) {
	switch r.Method {
	case holds.Acquire:
		ls.serveAcquire(w, r, body)
	case holds.Renew, holds.Release:
		ls.serveRefs(w, r, body)
	case holds.Inspect:
		ls.serveInspect(w, r)
	case holds.Extend:
		ls.serveExtend(w, r, body)
	case holds.Abandon:
		ls.serveAbandon(w, r, body)
	default:
		answerCall(w, http.StatusNotImplemented, fmt.Appendf(nil, "worker: %q is no call between members that this worker knows", r.Method))
	}
}

func (ls *locks) serveAcquire(w *link.ResponseWriter, r *link.ServerRequest, body []byte) {
	var grant holds.Grant
	req, err := holds.ParseRequest(body)
	if err == nil {
		err = ls.worker.checkLease(req.Lease)
	}
	if err != nil {
		answerCall(w, http.StatusBadRequest, []byte(err.Error()))
		return
	}
	if _, held := splitBaggage(fieldValues(r.Fields, "Baggage")); slices.Contains(held, hashOf(r.Key)) {
		err = fmt.Errorf("%w: %q", ErrNested, r.Key)
	} else {
		grant, err = ls.acquire(r, req)
	}
	switch {
	case err == nil:
		answerCall(w, http.StatusOK, grant.Append(nil))
	case errors.Is(err, ErrLocked), errors.Is(err, ErrWaited):
		ls.worker.counts.refused(r.Context(), err)
		o, _ := ls.worker.parts[ls.worker.settings.Ring.Partition(r.Key)].inspect(r.Key)
		answerCall(w, http.StatusConflict, o.Append(nil))
	default:
		ls.refuse(w, r, err)
	}
}

// refuse answers a call that was not admitted.
func (ls *locks) refuse(w *link.ResponseWriter, r *link.ServerRequest, err error) {
	ls.worker.counts.refused(r.Context(), err)
	switch {
	case errors.Is(err, errOtherRequest):
		answerCall(w, http.StatusUnprocessableEntity, []byte(err.Error()))
		return
	case errors.Is(err, errNotHeld):
		answerCall(w, http.StatusGone, []byte(err.Error()))
		return
	}
	if refusal := refusalOf(err); refusal != nil {
		_ = w.Refuse(refusal) // nothing of the body is left to read, so it can only fail with the connection
		return
	}
	answerCall(w, problemOf(err).Status(), []byte(err.Error()))
}

// serveRefs renews or releases locks. With a key it waits for the partition to be
// served here, and is refused by who does not serve it.
func (ls *locks) serveRefs(w *link.ResponseWriter, r *link.ServerRequest, body []byte) {
	refs, err := holds.ParseRefs(body, len(ls.worker.parts))
	if err != nil {
		answerCall(w, http.StatusBadRequest, []byte(err.Error()))
		return
	}
	var p *partition
	if r.Key != "" {
		if p, err = ls.awaitPartition(r); err == nil && slices.ContainsFunc(refs, func(ref holds.Ref) bool { return ref.Partition != p.number }) {
			err = fmt.Errorf("%w: the call names locks of other partitions than that of its key", gateway.ErrBadKey)
		}
		if err != nil {
			ls.refuse(w, r, err)
			return
		}
	}
	var answer holds.Renewal
	if r.Method == holds.Release {
		answer.States, err = ls.release(r, refs)
	} else {
		answer, err = ls.renew(refs)
	}
	if err != nil {
		ls.refuse(w, r, err)
		return
	}
	switch {
	case p != nil && slices.Contains(answer.States, holds.Elsewhere) && !slices.Contains(answer.States, holds.Released): // it has just been closed
		ls.refuse(w, r, p.elsewhere(r.Key))
	case r.Method == holds.Renew:
		answerCall(w, http.StatusOK, answer.Append(nil))
	default:
		answerCall(w, http.StatusOK, holds.AppendStates(nil, answer.States))
	}
}

// serveAbandon ends a lock of which nobody has been told.
func (ls *locks) serveAbandon(w *link.ResponseWriter, r *link.ServerRequest, body []byte) {
	made, err := holds.ParseMade(body)
	if err != nil {
		answerCall(w, http.StatusBadRequest, []byte(err.Error()))
		return
	}
	p, err := ls.awaitPartition(r)
	if err != nil {
		ls.refuse(w, r, err)
		return
	}
	p.abandonLock(made.ID, func(l *lock) bool { return l.call == made.Call })
	answerCall(w, http.StatusOK, nil)
}

// checkLease returns an error if a lease is longer than may be.
func (w *Worker) checkLease(lease time.Duration) error {
	if most := max(w.cfg.MaxLease, w.settings.TTL); lease > most {
		return fmt.Errorf("worker: a lease of %v is more than the %v that this worker gives (Config.MaxLease)", lease, most)
	}
	return nil
}

// awaitPartition waits until the partition of the call's key is served here.
func (ls *locks) awaitPartition(r *link.ServerRequest) (*partition, error) {
	w := ls.worker
	how := asking{epoch: r.Epoch}
	p, _, err := w.placeOf(r.Key, &how)
	if err != nil {
		return nil, err
	}
	if p.open.Load() {
		return p, nil
	}
	if !r.BeginWait() {
		return nil, errLinkFull
	}
	defer r.EndWait()
	return p, p.awaitOwnership(r.Context(), r.Key, how, time.Now().Add(w.cfg.MaxWait))
}

// renew lets those locks go on that have not ended, and whose keys this worker has
// not lost. It may be the first that this incarnation promises of them.
func (ls *locks) renew(refs []holds.Ref) (holds.Renewal, error) {
	if err := ls.note(); err != nil {
		return holds.Renewal{}, err
	}
	r := holds.Renewal{Promise: ls.promise(), States: make([]holds.State, 0, len(refs))}
	now := ls.worker.now()
	for _, ref := range refs {
		r.States = append(r.States, ls.worker.parts[ref.Partition].renewLock(ref.ID, now))
	}
	return r, nil
}

// release ends locks, and the waits for them. Of one that the store may go on to keep it
// says that it is released, and to be asked for again.
func (ls *locks) release(r *link.ServerRequest, refs []holds.Ref) ([]holds.State, error) {
	ctx, cancel := context.WithTimeout(r.Context(), ls.worker.settings.TTL)
	defer cancel()
	if slices.ContainsFunc(refs, func(ref holds.Ref) bool { return ls.worker.parts[ref.Partition].mayBeKept(ref.ID) }) {
		if !r.BeginWait() {
			return nil, errLinkFull
		}
		defer r.EndWait()
	}
	sure := ls.promise().Surrender > 0
	states, removals := make([]holds.State, len(refs)), make([]*lockWrite, len(refs))
	for i, ref := range refs {
		states[i], removals[i] = ls.worker.parts[ref.Partition].releaseLock(ref.ID, sure)
	}
	for i, removal := range removals {
		switch {
		case removal == nil || removal.await(ctx):
		case states[i] == holds.Held:
			states[i] = holds.Released
		default:
			states[i] = holds.Elsewhere
		}
	}
	return states, nil
}

// acquire waits for a key, and holds it then for who asks. One who repeats himself
// gets what he has already.
func (ls *locks) acquire(r *link.ServerRequest, req holds.Request) (grant holds.Grant, err error) {
	w := ls.worker
	how := asking{try: req.Try, shared: req.Shared, epoch: r.Epoch, share: r, client: r.Client, maxWait: min(req.Wait, w.cfg.MaxWait), timing: w.timingOfLock(r)}
	p, key, err := w.placeOf(strings.Clone(r.Key), &how) // of the call only the key is kept
	if err != nil {
		return holds.Grant{}, err
	}
	ctx, end := context.WithCancel(r.Context())
	defer end()
	came := w.now()
	own := &lock{id: req.ID, call: req.Call, key: key, label: req.Label, from: r.Remote(), lease: w.lockLease(req.Lease), shared: req.Shared, timing: how.timing}
	l, gaveUp, err := ls.get(ctx, p, own, how)
	if err != nil {
		return holds.Grant{}, err
	}
	if err = ls.note(); err == nil {
		grant, err = ls.prolong(ctx, p, r, holds.Extension{ID: l.id, Firm: req.Firm, Lease: req.Lease}, own.mode())
	}
	if gaveUp() || errors.Is(err, errNotHeld) {
		err = fmt.Errorf("%w: what was to hold key %q has ended already", ErrUnavailable, key)
	}
	if err != nil {
		p.abandonLock(own.id, own.isAlone)
		return holds.Grant{}, err
	}
	if l == own {
		ls.waits.Observe(w.now() - came)
	}
	grant.Next, grant.Turns = p.reserveTurns(l, req.Turns)
	return grant, nil
}

// reserveTurns reserves tokens for who asks for l and passes it on, by which each turn has one that
// is above those of all others who have had the key, and below those of all who will: nobody else
// gets it before l ends. What is asked for again has other tokens, and those of before are not used.
func (p *partition) reserveTurns(l *lock, turns int) (next int64, reserved int) {
	t := &p.locks
	t.mu.Lock()
	defer t.mu.Unlock()
	if turns == 0 || !t.open || t.byID[l.id] != l {
		return 0, 0
	}
	if next, reserved = p.table.Reserve(turns); reserved > 0 {
		p.minted(next + int64(reserved) - 1)
	}
	return next, reserved
}

// isAlone reports whether l was made by the call for own, and no other call has found it.
func (own *lock) isAlone(l *lock) bool { return l == own && !l.found }

// abandonLock ends a lock of which nobody was told, as unknown reports. One that is frozen stays, since
// it may be at its next owner by now.
func (p *partition) abandonLock(id holds.ID, unknown func(*lock) bool) {
	t := &p.locks
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := p.findLocked(id); l != nil && t.open && unknown(l) {
		p.endLocked(l, lockReleased)
	}
}

// lockLease returns the lease with which a lock begins for which that much is wanted: a
// longer one it has once the store keeps it.
func (w *Worker) lockLease(wanted time.Duration) time.Duration {
	if ttl := w.settings.TTL; wanted == 0 || wanted > ttl {
		return ttl
	}
	return wanted
}

// get returns the lock with the id of l: one that is held already, or l once its key is
// won. gaveUp reports whether the call has ended meanwhile, or another one has ended its
// wait.
func (ls *locks) get(ctx context.Context, p *partition, l *lock, how asking) (_ *lock, gaveUp func() bool, err error) {
	for {
		wait, giveUp := context.WithCancel(ctx)                               // until the call ends
		gaveUp = func() bool { return wait.Err() != nil || ctx.Err() != nil } // wait follows ctx a little later
		held, before, err := ls.enter(giveUp, p, l)
		if held != nil || err != nil {
			return held, gaveUp, err
		}
		if before != nil {
			select {
			case <-before:
				continue
			case <-ctx.Done():
				return nil, nil, context.Cause(ctx)
			}
		}
		if again, err := ls.await(wait, p, l, how); !again || ctx.Err() != nil {
			return l, gaveUp, err
		}
	}
}

// errOtherRequest means that a call names a lock that was made for something else.
var errOtherRequest = errors.New("worker: this name of a lock is taken by another request")

// lockMode is how a call wants a key.
type lockMode uint8

const (
	anyMode lockMode = iota // as the lock has it
	alone
	together // with other shared locks
)

func (l *lock) mode() lockMode {
	if l.shared {
		return together
	}
	return alone
}

// isFor returns an error that says what differs, unless a call for that key, in that mode, is the request that l was made
// for. All calls that find a lock by its id ask it.
func (l *lock) isFor(key string, mode lockMode) error {
	switch {
	case l.key != key:
		return fmt.Errorf("%w: it is of another key than %q", errOtherRequest, key)
	case mode == alone && l.shared:
		return fmt.Errorf("%w: it locks key %q for reading, and this call asks for writing", errOtherRequest, key)
	case mode == together && !l.shared:
		return fmt.Errorf("%w: it locks key %q for writing, and this call asks for reading", errOtherRequest, key)
	}
	return nil
}

// enter returns the lock with the id of l if it is held already; otherwise, unless a call
// before this one waits for it, which is given up, and after which this one is to try
// again, this one waits from now on.
func (ls *locks) enter(giveUp func(), p *partition, l *lock) (held *lock, settled <-chan struct{}, err error) {
	w, t := ls.worker, &p.locks
	t.mu.Lock()
	defer t.mu.Unlock()
	held, wait := p.findLocked(l.id), t.waits[l.id]
	late := false
	if i := t.wasReleased(l.id); i >= 0 {
		if late = l.call != 0 && t.done[i].call == l.call; !late {
			t.done = slices.Delete(t.done, i, i+1)
		}
	}
	before := held
	if held == nil && wait != nil {
		before = wait.lock
	}
	if before != nil {
		err = before.isFor(l.key, l.mode())
	}
	switch {
	case err != nil:
		return nil, nil, err
	case ls.sweeps.closed.Load():
		return nil, nil, ErrUnavailable
	case held != nil && !t.open:
		return nil, nil, p.elsewhere(l.key)
	case held != nil && !p.vouches(held):
		return nil, nil, fmt.Errorf("%w: what held key %q has ended", ErrUnavailable, l.key)
	case held != nil:
		if held.found = true; held.call != l.call {
			held.call = 0
		}
		held.expires = max(held.expires, w.now()+held.lease)
		return held, nil, nil
	case wait != nil:
		wait.giveUp()
		return nil, wait.settled, nil
	case late:
		return nil, nil, fmt.Errorf("%w: %q: it was released", errNotHeld, l.key)
	case !t.fits(l.size()):
		return nil, nil, p.tooManyLocked()
	case ls.count.Add(1) > int64(w.cfg.MaxHolds):
		ls.count.Add(-1)
		return nil, nil, fmt.Errorf("%w: %d keys are held for other members (Config.MaxHolds)", ErrBusy, w.cfg.MaxHolds)
	}
	if t.waits == nil {
		t.waits = make(map[holds.ID]*lockWait)
	}
	t.waits[l.id] = &lockWait{lock: l, giveUp: giveUp, settled: make(chan struct{})}
	return nil, nil, nil
}

// await waits for the key of l, and makes it a lock then. It reports true if a lock of that id has come with the partition meanwhile.
func (ls *locks) await(ctx context.Context, p *partition, l *lock, how asking) (again bool, err error) {
	token, cancels, err := ls.worker.win(ctx, p, l.key, how)
	t := &p.locks
	t.mu.Lock()
	close(t.waits[l.id].settled)
	delete(t.waits, l.id)
	full := err == nil && !t.fits(l.size())
	closed := err == nil && !full && p.table.SetRemote(l.key, token)
	if err == nil && !closed && !full {
		p.grantLocked(l, token, cancels)
	} else {
		ls.count.Add(-1)
	}
	again = err != nil && t.byID[l.id] != nil
	if full {
		err = p.tooManyLocked()
	}
	t.mu.Unlock()
	if closed {
		err = p.elsewhere(l.key)
	}
	if closed || full { // with the key won, and not a lock yet: an execution for those who have listed it
		p.unlock(l.key, token)
	}
	return again, err
}
