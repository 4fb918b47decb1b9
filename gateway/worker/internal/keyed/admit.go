package keyed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/internal/handoff"
	"github.com/keyway-go/keyway/internal/holding"
	"github.com/keyway-go/keyway/internal/keysource"
	"github.com/keyway-go/keyway/internal/keytable"
	"github.com/keyway-go/keyway/internal/wake"
)

// Admit waits for key and returns the execution that holds it. It returns none if the holder of the
// key has taken the caller's item along and finished it.
//
// The order matters: Admit reads the cancellation count before it asks for the key, and compares
// the lease after the grant. It thus misses neither a cancellation nor an expiry in between, even
// if the process was stopped.
func (k *Keys) Admit(ctx context.Context, key string, how Asking) (Execution, error) {
	p, name, err := k.PlaceOf(key, &how)
	if err != nil {
		return Execution{}, err
	}
	if ctx.Err() != nil {
		return Execution{}, context.Cause(ctx)
	}
	if !how.limited() {
		return k.admitTo(ctx, p, name, how)
	}
	term, err := k.pay(ctx, p, key, how)
	if err != nil {
		return Execution{}, err
	}
	x, err := k.admitTo(ctx, p, name, how)
	if notRun := err != nil || how.Alike && x.run == nil; notRun {
		k.rates.giveBack(how.Policy, key, term)
	}
	return x, err
}

// admitTo is admit for a key that has been checked, of that partition, and where no
// rate speaks against it.
func (k *Keys) admitTo(ctx context.Context, p *Partition, key string, how Asking) (Execution, error) {
	token, cancels, err := k.tryKey(p, key, false)
	waited := err != nil
	if waited {
		if x, nested, err := k.Nest(ctx, key, how.Call || how.Lock); nested {
			return x, err
		}
		if how.Along && ctx.Value(holding.Key(key)) != nil {
			return Execution{}, ErrAlong
		}
		token, cancels, err = k.awaitKey(ctx, p, key, how, err)
		if token == 0 {
			return Execution{}, err
		}
	}
	k.won(p, token)
	watched := false
	if k.Guarded.Load() && !how.Lock {
		if watched, err = k.Guard.Begin(KeyOf(key)); err != nil {
			p.Unlock(key, token)
			return Execution{}, err
		}
	}
	r := runs.Get().(*run)
	r.part, r.parent, r.token, r.cancels, r.watched = p, ctx, token, cancels, watched
	if p.sampled(token) {
		r.noteStart(key, waited)
	}
	if r.trace = how.Trace; r.trace != nil {
		r.parent = r.trace.Begin(ctx, p, key, token)
	}
	r.policy = how.Policy
	return Execution{run: r, life: r.state.Load(), Key: key}, nil
}

// Win waits for key, for something that holds it without an execution of this
// process: it returns the token, and p.cancels as it was when the key was asked for.
func (k *Keys) Win(ctx context.Context, p *Partition, key string, how Asking) (token int64, cancels uint64, err error) {
	token, cancels, err = k.tryKey(p, key, how.Shared)
	if waited := err != nil; waited {
		token, cancels, err = k.awaitKey(ctx, p, key, how, err)
	} else if p.sampled(token) {
		k.hot.add(key, sampleEvery, k.Now())
	}
	if err == nil {
		k.won(p, token)
		p.tally.counts[countHolds].Add(1)
	}
	return token, cancels, err
}

// tryKey returns the token of key if that is free, and p.cancels as it was before.
func (k *Keys) tryKey(p *Partition, key string, shared bool) (token int64, cancels uint64, err error) {
	cancels = p.Cancels.Load()
	if token, err = p.Table.Try(key, shared); err == nil {
		err = k.confirm(p, key, token, cancels)
	}
	return token, cancels, err
}

// awaitKey continues after tryKey has failed with err. The token is 0 unless the caller holds the
// key.
func (k *Keys) awaitKey(ctx context.Context, p *Partition, key string, how Asking, err error) (token int64, cancels uint64, _ error) {
	came := k.Now()
	k.hot.add(key, 1, came)
	if how.Try {
		return 0, 0, k.refuseTry(p, key, err)
	}
	if err := heldAlong(ctx, key); err != nil {
		return 0, 0, err
	}
	token, cancels, err = k.admitSlowly(ctx, p, key, how, err)
	took := k.Now() - came
	ended := token != 0 || err != nil // by itself, and not with the execution that has taken it along
	if ended {
		p.Waited(took)
	}
	if how.Trace != nil && (ended || how.Alike) {
		how.Trace.Waited(p, key, took, err)
	}
	return token, cancels, err
}

// won is called when a key is held from now on.
func (k *Keys) won(p *Partition, token int64) {
	if !k.looks.Load() && k.looks.CompareAndSwap(false, true) {
		wake.Up(k.began)
	}
	p.minted(token)
}

// errCancelled: all that the partition had admitted was cancelled while a key of it was asked for.
var errCancelled = errors.New("worker: cancelled while the key was asked for")

// confirm compares the lease, and then what cancels, once key was granted. It frees key again if
// either says no. In this order, because the lease may be that of the worker's next incarnation: it
// came after the cancellation of all that the one before had admitted.
func (k *Keys) confirm(p *Partition, key string, token int64, cancels uint64) (err error) {
	admits := k.Admits(time.Now())
	if k.Confirming != nil {
		k.Confirming()
	}
	switch {
	case !admits:
		err = gateway.ErrUnavailable
	case p.Cancels.Load() != cancels:
		err = errCancelled
	default:
		return nil
	}
	p.Unlock(key, token)
	return err
}

// StillAdmits returns why nothing may begin in x, which was admitted a while ago. It compares as confirm does. A nested
// execution may begin for as long as the outer one may continue.
func (k *Keys) StillAdmits(x Execution) error {
	if (x.Nested() || k.Admits(time.Now())) && !x.Lost() {
		return nil
	}
	return k.unconfirmed(x.Key)
}

// admitSlowly continues after the key was not granted at once, or could not be confirmed, with err.
// The token is 0 unless the caller holds the key.
func (k *Keys) admitSlowly(ctx context.Context, p *Partition, key string, how Asking, err error) (token int64, cancels uint64, _ error) {
	if how.Share != nil {
		if !how.Share.BeginWait() {
			return 0, 0, ErrLinkFull
		}
		defer how.Share.EndWait()
	}
	ctx, end := k.WaitAlong(ctx, key)
	defer end()
	wait, limit := keytable.Wait{Client: how.Client, Shared: how.Shared, Item: how.Item}, time.Now().Add(k.MaxWait(how))
	if how.Policy != nil {
		wait.PerKey = how.Policy.QueuePerKey
	}
	for {
		switch {
		case errors.Is(err, keytable.ErrClosed):
			if err := p.awaitOwnership(ctx, key, how, limit); err != nil {
				return 0, 0, err
			}
		case !k.Admits(time.Now()):
			return 0, 0, k.unconfirmed(key)
		}
		wait.MaxWait, wait.Came = max(time.Until(limit), 1), k.Now()
		cancels = p.Cancels.Load()
		token, err = p.Table.LockWait(ctx, key, wait)
		if token != 0 {
			if err := MayBegin(how.Share); err != nil { // before the lease is compared, since it takes time
				p.Unlock(key, token)
				return 0, 0, cmp.Or(context.Cause(ctx), err)
			}
			err = k.confirm(p, key, token, cancels)
		}
		switch {
		case err == nil:
			return token, cancels, nil
		case errors.Is(err, keytable.ErrQueueFull):
			return 0, 0, fmt.Errorf("%w for key %q: %w", gateway.ErrBusy, key, err)
		case ctx.Err() != nil && how.Call:
			return 0, 0, fmt.Errorf("worker: key %q was not free at worker %s: %w", key, k.cfg.Name, context.Cause(ctx))
		case ctx.Err() != nil:
			return 0, 0, context.Cause(ctx)
		case errors.Is(err, keytable.ErrWaited):
			return 0, 0, &holds.Refused{Why: gateway.ErrWaited, Key: key, Text: fmt.Sprintf("was not free within %v at worker %s, and %d others wait for it: try again later", k.MaxWait(how), k.cfg.Name, p.Table.Queued(key))}
		case errors.Is(err, gateway.ErrUnavailable):
			return 0, 0, k.unconfirmed(key)
		case !errors.Is(err, keytable.ErrClosed) && !errors.Is(err, errCancelled):
			return 0, 0, err
		}
	}
}

// Release ends x and frees its key, once: it may be called again.
func (k *Keys) Release(x Execution) {
	r := x.run
	ctx, ok := r.endLife(x.life)
	if !ok {
		return
	}
	p, token, outer, trace := r.part, r.token, r.outer, r.trace
	r.reset(x.Key)
	if ctx == nil || !ctx.endExecution() {
		p.freeKey(x.Key, token, outer)
	}
	cancelled := ""
	if ctx != nil {
		cancelled = ctx.noteEnd()
	}
	if trace != nil {
		trace.End(cancelled)
	}
}

// refuseTry returns the error of a caller that would have to wait because of err.
func (k *Keys) refuseTry(p *Partition, key string, err error) error {
	switch {
	case errors.Is(err, keytable.ErrLocked):
		return &holds.Refused{Why: gateway.ErrLocked, Key: key, Text: "is held or waited for at worker " + k.cfg.Name + ": wait for it, or try again"}
	case errors.Is(err, keytable.ErrClosed):
		return p.Elsewhere(key)
	case errors.Is(err, gateway.ErrUnavailable):
		return k.unconfirmed(key)
	}
	return fmt.Errorf("%w for key %q: partition %d is between two epochs; try again", gateway.ErrUnavailable, key, p.Number)
}

// unconfirmed says that nothing may start without the session.
func (k *Keys) unconfirmed(key string) error {
	return fmt.Errorf("%w for key %q: the session of worker %s is not confirmed by the store", gateway.ErrUnavailable, key, k.cfg.Name)
}

// MaxWait returns how long the caller may wait for its key.
func (k *Keys) MaxWait(how Asking) time.Duration {
	if how.Policy == nil {
		return cmp.Or(how.MaxWait, k.cfg.MaxWait)
	}
	return cmp.Or(how.Policy.MaxWait, k.cfg.MaxWait)
}

// pay takes a token of the caller's route for key, if that has a rate. It waits for
// the partition to arrive, as a request does: only the key's owner knows how many are
// left. The token can be given back in the term that it returns, unless the error says
// that there is none, or that the key is another worker's.
func (k *Keys) pay(ctx context.Context, p *Partition, key string, how Asking) (term uint64, err error) {
	if err := p.AwaitOpen(ctx, key, how); err != nil {
		return 0, err
	}
	term = p.Term.Load()
	return term, k.rates.takeToken(how.Policy, key, term, k.Now())
}

// AwaitOpen is awaitOwnership for a caller that does not wait for its key so far. Its origin knows that it may begin then:
// it may have its key without another wait.
func (p *Partition) AwaitOpen(ctx context.Context, key string, how Asking) error {
	if p.Open.Load() {
		return nil
	}
	if how.Share != nil {
		if !how.Share.BeginWait() {
			return ErrLinkFull
		}
		defer how.Share.EndWait()
	}
	if err := p.awaitOwnership(ctx, key, how, time.Now().Add(p.keys.MaxWait(how))); err != nil {
		return err
	}
	return MayBegin(how.Share)
}

// awaitOwnership waits for the partition to open. A call is one of this program: it waits until
// limit while no other live worker owns the partition. Any other is a request that can be sent
// elsewhere: it waits for AwaitTimeout where the partition is about to open here, and for moveWait where it is
// being given away. It returns a *NotOwnerError or *UnownedError for key.
func (p *Partition) awaitOwnership(ctx context.Context, key string, how Asking, limit time.Time) error {
	k := p.keys
	if k.Awaiting.Add(1) > int64(k.cfg.MaxAwaiting) {
		k.Awaiting.Add(-1)
		return fmt.Errorf("%w for partition %d to arrive", gateway.ErrBusy, p.Number)
	}
	defer k.Awaiting.Add(-1)
	patience := time.Until(limit)
	switch {
	case how.Call:
	case p.expected(how.Epoch):
		patience = min(patience, k.cfg.AwaitTimeout)
	default:
		patience = min(patience, moveWait)
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		changed := p.changed.Over()
		_, _, owned := p.Owner()
		switch {
		case k.Draining.Load() && (how.Call || !p.isMoving() || p.expected(how.Epoch)): // expected: nobody else would take it
			return p.Elsewhere(key)
		case p.Open.Load():
			return nil
		case how.Call && owned:
			return p.Elsewhere(key)
		case !how.Call && !p.expected(how.Epoch) && !p.isMoving():
			return p.Elsewhere(key)
		}
		if !p.awaited.Swap(true) {
			k.Owner.Post(handoff.Awaited{Partition: p.Number})
		}
		select {
		case <-changed:
		case <-timeout.C:
			return p.Elsewhere(key)
		case <-ctx.Done():
			if how.Call {
				return fmt.Errorf("%w: %w", context.Cause(ctx), p.Elsewhere(key))
			}
			return context.Cause(ctx)
		}
	}
}

// moveWait is how long a request waits for the store to say who gets a partition that is given away, so that it can be
// refused with the name of its next owner. Without one, routers ask again after some milliseconds.
const moveWait = 50 * time.Millisecond

// isMoving reports whether the partition, which is closed, is still this worker's in the store.
func (p *Partition) isMoving() bool {
	known := p.Record.Load()
	return known != nil && known.Owner == p.keys.Incarnation()
}

// expected reports whether the partition can be expected to open here soon. It can if an owner with
// an unknown, newer epoch sent the caller here. It also can if no living member owns it and the
// ring names this worker or none.
func (p *Partition) expected(epoch int64) bool {
	known := p.Record.Load()
	if known != nil && epoch > known.Epoch {
		return true
	}
	view := p.keys.cfg.View()
	target, ok := view.Owner(p.Number)
	if ok && target.Name != p.keys.cfg.Name {
		return false
	}
	if known == nil || known.Owner == "" {
		return true
	}
	_, alive := view.Find(known.Owner)
	return !alive || known.Owner == p.keys.Incarnation()
}

// Nest finds the execution that holds key along ctx, and begins another one within it, with the
// same token. The key stays held until both have ended. nested is false if there is none. If the
// ownership was lost, or the caller may not run within it, nested is true and there is an error.
func (k *Keys) Nest(ctx context.Context, key string, call bool) (x Execution, nested bool, err error) {
	for c := Innermost(ctx); c != nil; c = Innermost(c.parent) {
		if c.part.keys != k || c.key != key || !c.enter() {
			continue
		}
		switch {
		case !call:
			err = fmt.Errorf("%w: %q, of %s", gateway.ErrNested, key, chainOf(ctx))
		case c.part.Cancels.Load() != c.cancels:
			err = fmt.Errorf("%w: key %q is asked for within the execution that held it", gateway.ErrOwnershipLost, key)
		default:
			for inner := Innermost(ctx); inner != c; inner = Innermost(inner.parent) {
				inner.usesOuter.Store(true)
			}
			r := runs.Get().(*run)
			r.part, r.parent, r.token, r.cancels, r.outer = c.part, ctx, c.token, c.cancels, c
			return Execution{run: r, life: r.state.Load(), Key: key}, true, nil
		}
		c.leaveNested()
		return Execution{}, true, err
	}
	return Execution{}, false, nil
}

// PlaceOf returns the partition that admits a caller with that key, and the name under which it
// does.
func (k *Keys) PlaceOf(key string, how *Asking) (p *Partition, name string, err error) {
	if !how.Unkeyed() {
		if err := keysource.Check(key); err != nil {
			return nil, "", err
		}
		p = k.Of(key)
		if !how.keyless() {
			return p, key, nil
		}
	}
	n := k.keyless.Add(1)
	for i := 0; p == nil && i < len(k.Parts); i++ {
		if other := &k.Parts[(int(n%uint64(len(k.Parts)))+i)%len(k.Parts)]; other.Open.Load() {
			p = other
		}
	}
	if p == nil {
		return nil, "", fmt.Errorf("%w: worker %s serves no partition", gateway.ErrUnavailable, k.cfg.Name)
	}
	return p, "\x00" + strconv.FormatUint(n, 36) + "\x00" + key, nil
}
