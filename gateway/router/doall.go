package router

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/keyway-go/keyway/gateway"
)

// Hold runs fn while key is held at its owner, wherever that is: no other execution
// of the key runs at the same time, on any worker. token is the fencing token. At a
// key that is held along ctx already fn runs at once, with the same token.
//
// fn's ctx is cancelled, with a cause that wraps [gateway.ErrOwnershipLost], when the
// owner can no longer be known to hold the key: when it has not confirmed that for
// 0.8 of the session TTL, or says that it does not. fn must have ended at 0.95 of
// the TTL. The owner frees the key when fn has returned; if this process dies, a TTL
// after it was last heard of.
//
// Hold returns fn's error. If fn has not run, the error names key and wraps
// [gateway.ErrNoKey] or [gateway.ErrBadKey], [gateway.ErrUnavailable] if nobody
// takes the call in time, [gateway.ErrBusy] or [gateway.ErrWaited] if too many or
// too long have waited for the key, or the cause of ctx's end.
//
// Callers of one Client who want the same key take turns, as those of [Client.Lock] do, and with them. Who has waited half a
// minute for his turn asks the owner for himself, whose worker's Config.MaxWait bounds that wait.
//
// A key of another worker costs one round trip over the link before fn runs, or part of one that serves up to 64
// callers; its release is not waited for. Longer work renews the holds of each owner together,
// every fifth of the TTL. A key of this process's worker (ClientConfig.Local) costs
// what its Do does.
func (c *Client) Hold(ctx context.Context, key string, fn func(ctx context.Context, token int64) error) error {
	return c.hold(ctx, key, false, fn)
}

// TryHold is Hold without waiting for others: if the key is held or waited for, the
// error wraps [gateway.ErrHeld], as [Client.TryLock] has it.
func (c *Client) TryHold(ctx context.Context, key string, fn func(ctx context.Context, token int64) error) error {
	return c.hold(ctx, key, true, fn)
}

func (c *Client) hold(ctx context.Context, key string, try bool, fn func(ctx context.Context, token int64) error) error {
	l, err := c.take(ctx, ctx, key, want{try: try, inLine: !try, impatient: true})
	if err != nil {
		return err
	}
	defer l.end(nil)
	return fn(l.ctx, l.token)
}

// maxKeys bounds how many keys one call of DoAll holds.
const maxKeys = 64

// Executions are keys that are held together.
type Executions struct {
	ctx    context.Context
	keys   []string // sorted
	tokens []int64
}

// Context returns the context to work under, as [Client.Hold] has it: it is cancelled
// when any of the keys is lost.
func (xs Executions) Context() context.Context { return xs.ctx }

// Keys returns the keys, sorted, each once.
func (xs Executions) Keys() []string { return slices.Clone(xs.keys) }

// Token returns the fencing token of key, 0 if it is none of Keys.
func (xs Executions) Token(key string) int64 {
	i, found := slices.BinarySearch(xs.keys, key)
	if !found {
		return 0
	}
	return xs.tokens[i]
}

// DoAll runs fn while all keys are held, as [Client.Hold] holds each: one after the
// other in the order of their bytes, so that calls of DoAll never wait for each
// other in a circle. It holds 64 keys at most; a key that is named twice is held
// once. A call within an execution that holds a later one of the keys, or another
// key that others take after these, may wait in a circle nevertheless, until one of
// the waits ends for being too long.
//
// DoAll is no transaction: if fn fails in the middle, or this process dies, what it
// has done stays done. Each resource that is written to can refuse the tokens of
// those who have lost their keys.
//
// It costs one round trip over the link for each key of another worker, one after
// the other; a key that is held is held while the next ones are waited for. DoAll
// returns fn's error, or the error of Hold for the key that could not be held.
func (c *Client) DoAll(ctx context.Context, keys []string, fn func(Executions) error) error {
	set := make(map[string]struct{}, len(keys))
	for _, key := range keys {
		if err := gateway.CheckKey(key); err != nil {
			return fmt.Errorf("router: DoAll: key %.64q: %w", key, err)
		}
		set[key] = struct{}{}
	}
	switch {
	case len(set) == 0:
		return fmt.Errorf("router: DoAll: %w", gateway.ErrNoKey)
	case len(set) > maxKeys:
		return fmt.Errorf("router: DoAll: %d keys, the limit is %d", len(set), maxKeys)
	}
	xs := Executions{keys: slices.Sorted(maps.Keys(set)), tokens: make([]int64, len(set))}
	return c.doAll(ctx, xs, 0, fn)
}

// doAll holds the keys from the i-th on, and runs fn then.
func (c *Client) doAll(ctx context.Context, xs Executions, i int, fn func(Executions) error) error {
	if i == len(xs.keys) {
		xs.ctx = ctx
		return fn(xs)
	}
	return c.hold(ctx, xs.keys[i], false, func(ctx context.Context, token int64) error {
		xs.tokens[i] = token
		return c.doAll(ctx, xs, i+1, fn)
	})
}
