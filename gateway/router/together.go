package router

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// maxKeys bounds how many keys are held together.
const maxKeys = 64

// together is keys that are held at the same time.
type together struct {
	ctx   context.Context
	locks []*Lock // in the order of their keys; each is taken in the context of the one before
}

// takeAll takes keys one after the other in the order of their bytes, or none of them.
func takeAll(ctx context.Context, keys []string, take func(ctx context.Context, key string) (*Lock, error)) (together, error) {
	for _, key := range keys {
		if err := gateway.CheckKey(key); err != nil {
			return together{}, fmt.Errorf("router: several keys: %.64q: %w", key, err)
		}
	}
	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	switch {
	case len(keys) == 0:
		return together{}, fmt.Errorf("router: several keys: %w: name one at least", gateway.ErrNoKey)
	case len(keys) > maxKeys:
		return together{}, fmt.Errorf("router: several keys: there are %d, the limit is %d", len(keys), maxKeys)
	}
	all := together{ctx: ctx, locks: make([]*Lock, 0, len(keys))}
	for _, key := range keys {
		l, err := take(all.ctx, key)
		if err != nil {
			all.end()
			return together{}, err
		}
		all.ctx, all.locks = l.ctx, append(all.locks, l)
	}
	return all, nil
}

// end frees the keys, without a wait for their owners.
func (a together) end() {
	for _, l := range slices.Backward(a.locks) {
		l.end(nil)
	}
}

// Context returns the context to work under: it ends, with a cause that wraps [gateway.ErrOwnershipLost], when any
// of the keys is lost, and when they are given back.
func (a together) Context() context.Context { return a.ctx }

// Keys returns the keys, sorted, each once.
func (a together) Keys() []string {
	keys := make([]string, 0, len(a.locks))
	for _, l := range a.locks {
		keys = append(keys, l.key)
	}
	return keys
}

// Token returns the fencing token of key, 0 if it is none of Keys.
func (a together) Token(key string) int64 {
	for _, l := range a.locks {
		if l.key == key {
			return l.token
		}
	}
	return 0
}

// Locks are keys that are locked together by [Client.LockAll], until Unlock. Background renewals keep them.
type Locks struct{ together }

// LockAll takes the locks of all keys, or of none: one after the other in the order of their bytes, so that calls
// of LockAll and DoAll never wait for each other in a circle. It takes 64 at most; a key that is named twice is
// locked once. What is locked first stays so while the next ones are waited for.
//
// The options are those of [Client.Lock], for each key; Wait bounds the wait for all of them. Of a call within
// others' locks [Client.DoAll] says what may wait in a circle. It costs one round trip over the link for each key of
// another worker. The error is that of Lock for the key that could not be locked, which it names.
func (c *Client) LockAll(ctx context.Context, keys []string, opts ...locking.Option) (*Locks, error) {
	w, err := wanted(opts)
	if err != nil {
		return nil, fmt.Errorf("router: locking several keys: %w", err)
	}
	w.inLine = true
	until := time.Now().Add(w.wait)
	all, err := takeAll(ctx, keys, func(ctx context.Context, key string) (*Lock, error) { return c.lock(ctx, key, w, until) })
	if err != nil {
		return nil, err
	}
	return &Locks{all}, nil
}

// Until is when the first of the locks may be another's, as [Lock.Until] has it.
func (a *Locks) Until() time.Time {
	until := a.locks[0].Until()
	for _, l := range a.locks[1:] {
		if u := l.Until(); u.Before(until) {
			until = u
		}
	}
	return until
}

// Extend is [Lock.Extend] of each lock, all at once. With an error, which is that of the first key in their order that has
// one, others may have been extended.
func (a *Locks) Extend(ctx context.Context, ttl time.Duration) error {
	_, err := forEach(a.locks, func(l *Lock) (struct{}, error) { return struct{}{}, l.Extend(ctx, ttl) })
	return err
}

// Unlock is [Lock.Unlock] of each lock, all at once. It returns nil if all keys were the caller's up to then, or else the
// errors of those of which that is not so, or not known, joined.
func (a *Locks) Unlock(ctx context.Context) error {
	begun := make([]unlocking, len(a.locks))
	for i, l := range slices.Backward(a.locks) {
		begun[i] = l.beginUnlock()
	}
	var errs []error
	for _, u := range begun {
		errs = append(errs, u.answer(ctx))
	}
	return errors.Join(errs...)
}
