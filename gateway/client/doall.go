package client

import (
	"context"
	"fmt"
	"slices"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/internal/keysource"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// Do runs fn while key is held at its owner: no other execution of the key runs at the same time, on any worker.
// Callers of a key run in the order of their calls. Within an execution that already holds the key (that is, with
// its context), fn runs at once and with the same token, and the key is free when both have ended.
//
// If the key may be lost, the execution's context is cancelled with a cause that wraps
// [gateway.ErrOwnershipLost]. This happens when the owner has not confirmed the hold for 0.8 of the
// session TTL, or says that it does not hold the key. fn must end by 0.95 of the TTL. The owner
// frees the key when fn has returned. If this process dies, the key is free one TTL after the owner
// last heard from it.
//
// Do returns fn's error. If fn has not run, the error names key and wraps [gateway.ErrNoKey] or
// [gateway.ErrBadKey], [gateway.ErrUnavailable] if no worker took the call in time,
// [gateway.ErrBusy] if too many callers wait, [gateway.ErrWaited] if the wait exceeded the owner's
// Limits.MaxWait, or the cause of ctx's end.
//
// Callers of one Client that want the same key take turns, together with those of
// [Client.Lock]. After 30 s a caller stops sharing that queue and asks the owner
// directly; the owner's Limits.MaxWait then applies.
//
// A key of another worker costs one round trip over the link before fn runs; one round trip can
// serve up to 64 callers. Do does not wait for the release. Long-running holds at one owner are
// renewed together, every fifth of the TTL. A key of this process's worker (Config.Local) costs
// what the worker's Do does.
func (c *Client) Do(ctx context.Context, key string, fn func(gateway.Execution) error) error {
	return c.do(ctx, key, &untilHeld, fn)
}

// TryDo is Do without waiting for others. If the key is held or waited for, the
// error wraps [gateway.ErrLocked], as that of [Client.TryLock] does.
func (c *Client) TryDo(ctx context.Context, key string, fn func(gateway.Execution) error) error {
	return c.do(ctx, key, &ifFree, fn)
}

// How Do, DoAll and TryDo ask for a key.
var (
	untilHeld = want{inLine: true, call: true}
	ifFree    = want{try: true, call: true}
)

func (c *Client) do(ctx context.Context, key string, w *want, fn func(gateway.Execution) error) error {
	if c.local != nil {
		if here, err := c.local.Do(ctx, key, w.try, fn); here {
			return err
		}
	}
	l, err := c.acquireKey(ctx, key, *w)
	if err != nil {
		return err
	}
	defer l.release(nil)
	return fn(gateway.NewExecution(l, 0, l.key, l.token))
}

// ExecutionContext is for [gateway.Execution].
func (l *Lock) ExecutionContext(uint64, string) context.Context { return l.Context() }

// DoAll runs fn while all keys are held, each as [Client.Do] holds it. It takes them one after the
// other in the order of their bytes, so calls of DoAll never deadlock with each other. More than
// 64 keys are an [gateway.ErrBadKey]; a repeated key is held once. The execution's TokenOf returns the token of each.
// A call can still deadlock within an execution that holds a later one of the keys, or another key
// that other callers take after these. The deadlock lasts until one of the waits times out.
//
// DoAll is no transaction: if fn fails in the middle, or this process dies, its effects up to then
// remain. A resource can refuse writes with the token of a caller that has lost its key.
//
// Each key of another worker costs one round trip over the link, one after the other. DoAll
// returns fn's error, or the error of Do for the key that could not be held.
func (c *Client) DoAll(ctx context.Context, keys []string, fn func(gateway.Execution) error) error {
	l, err := c.acquireAll(ctx, keys, untilHeld)
	if err != nil {
		return err
	}
	defer l.endAll()
	return fn(gateway.NewExecution(l, 0, l.key, l.token))
}

// acquireAll acquires keys one after the other in the order of their bytes, or none of
// them. Each is acquired in the context of the one before.
func (c *Client) acquireAll(ctx context.Context, keys []string, w want) (*Lock, error) {
	for _, key := range keys {
		if err := keysource.Check(key); err != nil {
			return nil, fmt.Errorf("client: several keys: %.64q: %w", key, err)
		}
	}
	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	switch {
	case len(keys) == 0:
		return nil, fmt.Errorf("client: several keys: %w: name one at least", gateway.ErrNoKey)
	case len(keys) > holds.MaxKeys:
		return nil, fmt.Errorf("client: several keys: %w: there are %d, the limit is %d", gateway.ErrBadKey, len(keys), holds.MaxKeys)
	}
	all, err := c.acquireKey(ctx, keys[0], w)
	if err != nil {
		return nil, err
	}
	for _, key := range keys[1:] {
		l, err := c.acquireKey(all.Context(), key, w)
		if err != nil {
			all.endAll()
			return nil, err
		}
		all.others = append(all.others, l)
	}
	return all, nil
}

// each returns the locks of single keys that l consists of, in the order of their keys.
func (l *Lock) each() []*Lock { return append([]*Lock{l}, l.others...) }

// endAll frees the keys, without a wait for their owners.
func (l *Lock) endAll() {
	for _, one := range slices.Backward(l.each()) {
		one.release(nil)
	}
}

// LockAll takes the locks of all keys as one [Lock], or none. It takes them one after the other in
// the order of their bytes, so calls of LockAll and DoAll never deadlock with each other;
// [Client.DoAll] says when a call still can. More than 64 keys are an [gateway.ErrBadKey]; a repeated key is locked
// once. Each key of another worker costs one round trip.
//
// The options are those of [Client.Lock], for each key; Wait bounds the whole call. The error is
// that of Lock for the key that could not be locked, which it names.
func (c *Client) LockAll(ctx context.Context, keys []string, opts ...locking.Option) (*Lock, error) {
	w := want{inLine: true}
	if err := w.apply(opts); err != nil {
		return nil, fmt.Errorf("client: locking several keys: %w", err)
	}
	return c.acquireAll(ctx, keys, w)
}
