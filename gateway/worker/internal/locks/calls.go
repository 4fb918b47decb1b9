package locks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/worker/internal/keyed"
	"github.com/keyway-go/keyway/gateway/worker/internal/remote"
	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// badCall is the error of a call that makes no sense.
type badCall struct{ error }

// Serve answers a call about locks.
func (ls *Locks) Serve(w *link.ResponseWriter, r *link.ServerRequest, body []byte) {
	var answer []byte
	var err error
	switch r.Method {
	case holds.Acquire, holds.Extend, holds.Abandon:
		answer, err = ls.serveRequest(r, body)
	case holds.Renew, holds.Release:
		answer, err = ls.serveRefs(r, body)
	case holds.Inspect:
		answer, err = ls.serveInspect(r)
	default:
		Answer(w, http.StatusNotImplemented, fmt.Appendf(nil, "worker: %q is no call between members that this worker knows", r.Method))
		return
	}
	if _, bad := errors.AsType[badCall](err); bad {
		Answer(w, http.StatusBadRequest, []byte(err.Error()))
	} else if err != nil {
		ls.refuse(w, r, err)
	} else {
		Answer(w, http.StatusOK, answer)
	}
}

// refuse answers a call that was not admitted.
func (ls *Locks) refuse(w *link.ResponseWriter, r *link.ServerRequest, err error) {
	refusal, status := ls.cfg.Refused(r.Context(), err)
	switch {
	case errors.Is(err, gateway.ErrLocked), errors.Is(err, gateway.ErrWaited):
		o, _ := ls.inspect(ls.cfg.Keys.Of(r.Key), r.Key)
		Answer(w, http.StatusConflict, o.Append(nil))
	case errors.Is(err, remote.ErrOtherRequest):
		Answer(w, http.StatusUnprocessableEntity, []byte(err.Error()))
	case errors.Is(err, remote.ErrNotHeld):
		Answer(w, http.StatusGone, []byte(err.Error()))
	case refusal != nil:
		_ = w.Refuse(refusal) // nothing of the body is left to read, so it can only fail with the connection
	default:
		Answer(w, status, []byte(err.Error()))
	}
}

// serveRequest acquires a key, gives its lock another lease from now on, or ends a lock that its caller never learned of.
func (ls *Locks) serveRequest(r *link.ServerRequest, body []byte) ([]byte, error) {
	req, err := holds.ParseRequest(body)
	most := max(ls.cfg.MaxLease, ls.cfg.Settings.TTL)
	switch {
	case err != nil:
		return nil, badCall{err}
	case req.Lease > most:
		return nil, badCall{fmt.Errorf("worker: a lease of %v is more than the %v that this worker gives (Limits.MaxLease, --max-lease): ask for less", req.Lease, most)}
	case r.Method == holds.Extend:
		grant, err := ls.extend(r, req)
		return grant.Append(nil), err
	case r.Method == holds.Abandon:
		return nil, ls.abandon(r, req)
	}
	if _, held := keyed.SplitBaggage(r.Fields.Values("Baggage")); slices.Contains(held, keyed.HashOf(r.Key)) {
		return nil, fmt.Errorf("%w: %q", gateway.ErrNested, r.Key)
	}
	grant, err := ls.acquire(r, req)
	return grant.Append(nil), err
}

// serveRefs renews or releases locks. With a key it waits for the partition to be
// served here, and is refused by a worker that does not serve it.
func (ls *Locks) serveRefs(r *link.ServerRequest, body []byte) ([]byte, error) {
	refs, err := holds.ParseRefs(body, len(ls.cfg.Keys.Parts))
	if err != nil {
		return nil, badCall{err}
	}
	var p *keyed.Partition
	if r.Key != "" {
		if p, err = ls.awaitPartition(r); err == nil && slices.ContainsFunc(refs, func(ref holds.Ref) bool { return ref.Partition != p.Number }) {
			err = fmt.Errorf("%w: the call names locks of other partitions than that of its key", gateway.ErrBadKey)
		}
	}
	var answer holds.Answers
	if err == nil && r.Method == holds.Release {
		answer.States, err = ls.release(r, refs)
	} else if err == nil {
		answer, err = ls.renew(r.Context(), refs)
	}
	switch {
	case err != nil:
		return nil, err
	case p != nil && slices.Contains(answer.States, holder.Elsewhere) && !slices.Contains(answer.States, holder.Released): // it has just been closed
		return nil, p.Elsewhere(r.Key)
	}
	return answer.Append(nil), nil
}

func (ls *Locks) abandon(r *link.ServerRequest, req holds.Request) error {
	if req.Call == 0 {
		return badCall{errors.New("worker: a request without a number has nothing to abandon")}
	}
	p, err := ls.awaitPartition(r)
	if err == nil {
		ls.of(p).do(func(m *remote.Machine, at remote.Instant) { m.Abandon(at, remote.ID(req.ID), req.Call) })
	}
	return err
}

// awaitPartition waits until the partition of the call's key is served here.
func (ls *Locks) awaitPartition(r *link.ServerRequest) (*keyed.Partition, error) {
	how := keyed.Asking{Epoch: r.Epoch, Share: r}
	p, _, err := ls.cfg.Keys.PlaceOf(r.Key, &how)
	if err != nil {
		return nil, err
	}
	return p, p.AwaitOpen(r.Context(), r.Key, how)
}

// renew renews locks that have not ended and whose keys this worker has not lost. It may be the
// first promise of this incarnation.
func (ls *Locks) renew(ctx context.Context, refs []holds.Ref) (holds.Answers, error) {
	key := "" // of one of several locks, or of one that is not known
	if len(refs) == 1 {
		ls.tables[refs[0].Partition].do(func(m *remote.Machine, _ remote.Instant) { key = m.KeyOf(remote.ID(refs[0].ID)) })
	}
	if err := ls.noteFirstHold(ctx, key); err != nil {
		return holds.Answers{}, err
	}
	r := holds.Answers{Promise: ls.promise(), States: make([]holder.Answer, 0, len(refs))}
	for _, ref := range refs {
		ls.tables[ref.Partition].do(func(m *remote.Machine, at remote.Instant) {
			r.States = append(r.States, m.Renew(at, remote.ID(ref.ID), ref.Token, r.Surrender > 0))
		})
	}
	return r, nil
}

// release ends locks, and the waits for them. If the store may still keep a lock, the state
// is holder.Released, and the caller asks again.
func (ls *Locks) release(r *link.ServerRequest, refs []holds.Ref) ([]holder.Answer, error) {
	ctx, cancel := context.WithTimeout(r.Context(), ls.cfg.Settings.TTL)
	defer cancel()
	table := func(ref holds.Ref) *lockTable { return &ls.tables[ref.Partition] }
	mayBeKept := func(ref holds.Ref) (kept bool) {
		table(ref).do(func(m *remote.Machine, _ remote.Instant) { kept = m.MayBeKept(remote.ID(ref.ID)) })
		return kept
	}
	if slices.ContainsFunc(refs, mayBeKept) {
		if !r.BeginWait() {
			return nil, keyed.ErrLinkFull
		}
		defer r.EndWait()
	}
	sure := ls.promise().Surrender > 0
	states, removals := make([]holder.Answer, len(refs)), make([]*lockWait, len(refs))
	for i, ref := range refs {
		t := table(ref)
		at := t.lock()
		answer, removed := t.machine.Release(at, remote.ID(ref.ID), ref.Token, sure)
		states[i], removals[i] = answer, t.waitFor(removed)
		t.unlock()
	}
	for i, removal := range removals {
		switch {
		case removal == nil || removal.await(ctx):
		case states[i] == holder.Held:
			states[i] = holder.Released
		default:
			states[i] = holder.Elsewhere
		}
	}
	return states, nil
}

// acquire waits for a key, and holds it then for the caller. A repeated call gets the lock that exists.
func (ls *Locks) acquire(r *link.ServerRequest, req holds.Request) (grant holds.Grant, err error) {
	how := keyed.Asking{Try: req.Try, Shared: req.Shared, Epoch: r.Epoch, Share: r, Client: r.Client, MaxWait: min(req.Wait, ls.cfg.MaxWait), Trace: ls.cfg.Trace(r)}
	p, key, err := ls.cfg.Keys.PlaceOf(strings.Clone(r.Key), &how) // of the call only the key is kept
	if err != nil {
		return holds.Grant{}, err
	}
	ctx, end := context.WithCancel(r.Context())
	defer end()
	came := ls.cfg.Keys.Now()
	ttl := ls.cfg.Settings.TTL
	lease := cmp.Or(min(req.Lease, ttl), ttl) // a longer one starts once the store keeps the lock
	own := &remote.Lock{ID: remote.ID(req.ID), Call: req.Call, Key: key, Label: req.Label, From: r.Remote(), Lease: lease, Shared: req.Shared}
	l, gaveUp, err := ls.Get(ctx, p, own, how)
	if err != nil {
		return holds.Grant{}, err
	}
	if err = ls.noteFirstHold(ctx, key); err == nil {
		grant, err = ls.prolong(ctx, p, r, remote.Extension{ID: own.ID, Token: l.Token, Key: key, Lease: req.Lease, Firm: req.Firm})
	}
	if gaveUp() || errors.Is(err, remote.ErrNotHeld) {
		err = fmt.Errorf("%w: the lock of key %q has ended already", gateway.ErrUnavailable, key)
	}
	if err != nil {
		ls.of(p).do(func(m *remote.Machine, at remote.Instant) { m.GiveUp(at, own) })
		return holds.Grant{}, err
	}
	if l == own {
		ls.Waits.Observe(ls.cfg.Keys.Now() - came)
	}
	grant.Next, grant.Turns = ls.of(p).reserveTurns(l, req.Turns)
	return grant, nil
}

// reserveTurns reserves tokens for a caller that passes l on. Each turn's token is above those of
// all earlier holders of the key, and below those of all later ones, since no other caller gets the
// key before l ends. A repeated call gets new tokens, and the earlier ones stay unused.
func (t *lockTable) reserveTurns(l *remote.Lock, turns int) (next int64, reserved int) {
	t.lock()
	defer t.unlock()
	if turns == 0 || !t.machine.Has(l) {
		return 0, 0
	}
	return t.part.Reserve(turns)
}

// Get returns the lock with the id of l: an existing one, or l once its key is won. gaveUp reports
// whether the call has ended, or another call has ended its wait.
func (ls *Locks) Get(ctx context.Context, p *keyed.Partition, l *remote.Lock, how keyed.Asking) (_ *remote.Lock, gaveUp func() bool, err error) {
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

// enter returns the lock with the id of l if it is held already. If an earlier call waits
// for it, enter gives that call up, and the caller tries again once settled is closed.
// Otherwise this call waits from now on.
func (ls *Locks) enter(giveUp func(), p *keyed.Partition, l *remote.Lock) (held *remote.Lock, settled <-chan struct{}, err error) {
	t, most := ls.of(p), int64(ls.cfg.MaxHolds)
	at := t.lock()
	defer t.unlock()
	if ls.closed.Load() {
		return nil, nil, gateway.ErrUnavailable
	}
	held, err = t.machine.Acquire(at, l)
	switch {
	case err == remote.ErrWaits:
		return nil, t.waits[held].settled, nil
	case held != nil || err != nil:
		return held, nil, t.refusalOf(err, l.Key)
	}
	t.counted.all++
	if ls.Count.Add(1) > most {
		t.machine.Refused(l)
		return nil, nil, fmt.Errorf("%w: %d keys are held for other members (Limits.MaxHolds)", gateway.ErrBusy, most)
	}
	t.waitFor(l).giveUp = giveUp
	return nil, nil, nil
}

// await waits for the key of l, and makes it a lock then. It reports true if a lock of that id has come with the partition meanwhile.
func (ls *Locks) await(ctx context.Context, p *keyed.Partition, l *remote.Lock, how keyed.Asking) (again bool, err error) {
	token, cancels, err := ls.cfg.Keys.Win(ctx, p, l.Key, how)
	won, t := err == nil, ls.of(p)
	at := t.lock()
	t.Settle(l, won)
	if !won {
		again = t.machine.Refused(l)
	} else if err = t.refusalOf(t.machine.Won(at, l, token, cancels), l.Key); err == nil && how.Trace != nil {
		how.Trace.Begin(context.Background(), p, l.Key, token)
		if t.traces == nil {
			t.traces = make(map[*remote.Lock]keyed.Trace)
		}
		t.traces[l] = how.Trace
	}
	t.unlock()
	if won && err != nil { // an execution for those who have listed it
		p.Unlock(l.Key, token)
	}
	return again, err
}

// extend may make the first promise of this incarnation.
func (ls *Locks) extend(r *link.ServerRequest, req holds.Request) (holds.Grant, error) {
	p, err := ls.awaitPartition(r)
	if err == nil {
		err = ls.noteFirstHold(r.Context(), r.Key)
	}
	if err != nil {
		return holds.Grant{}, err
	}
	return ls.prolong(r.Context(), p, r, remote.Extension{ID: remote.ID(req.ID), Key: r.Key, Lease: req.Lease, Firm: req.Firm})
}

// prolong gives a lock a lease from now on, once the store keeps the lock if it has to. A call that waits for the store
// counts among the waiting calls of its link.
func (ls *Locks) prolong(ctx context.Context, p *keyed.Partition, r *link.ServerRequest, x remote.Extension) (holds.Grant, error) {
	if x.Lease == 0 {
		x.Lease = ls.cfg.Settings.TTL
	}
	grant, _, err := ls.tryProlong(p, x)
	if err != remote.ErrKeepFirst {
		return grant, err
	}
	if !r.BeginWait() {
		return holds.Grant{}, keyed.ErrLinkFull
	}
	defer r.EndWait()
	ctx, cancel := context.WithTimeout(ctx, ls.cfg.MaxWait)
	defer cancel()
	for x.Keep = true; ; {
		grant, kept, err := ls.tryProlong(p, x)
		if err != remote.ErrKeepFirst {
			return grant, err
		}
		if !kept.await(ctx) && ctx.Err() != nil {
			return holds.Grant{}, fmt.Errorf("%w: the store did not save in time that a key is locked for %v: %w", gateway.ErrUnavailable, x.Lease, context.Cause(ctx))
		}
	}
}

// tryProlong is prolong if the store need not be waited for. Otherwise it returns the wait for it, nil without x.Keep.
func (ls *Locks) tryProlong(p *keyed.Partition, x remote.Extension) (grant holds.Grant, kept *lockWait, err error) {
	promise := ls.promise()
	x.Vouch = promise.Surrender
	t := ls.of(p)
	at := t.lock()
	defer t.unlock()
	l, firm, err := t.machine.Extend(at, x)
	switch {
	case err == remote.ErrKeepFirst && x.Keep:
		return grant, t.waitFor(l), err
	case err != nil:
		return grant, nil, t.refusalOf(err, x.Key)
	case firm:
		promise = holder.Promise{Cancel: x.Lease, Surrender: x.Lease}
	}
	return holds.Grant{Token: l.Token, Lease: l.Lease, Promise: promise}, nil, nil
}

// Answer answers a call. Should it fail, so has the connection.
func Answer(w *link.ResponseWriter, status int, body []byte) {
	if w.WriteHead(status, int64(len(body)), nil) == nil {
		_, _ = w.Write(body)
	}
}
