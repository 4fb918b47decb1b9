package router

import "context"

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
	return c.hold(ctx, key, untilHeld, fn)
}

// TryHold is Hold without waiting for others: if the key is held or waited for, the
// error wraps [gateway.ErrHeld], as [Client.TryLock] has it.
func (c *Client) TryHold(ctx context.Context, key string, fn func(ctx context.Context, token int64) error) error {
	return c.hold(ctx, key, want{try: true}, fn)
}

// untilHeld is how Hold and DoAll ask for a key.
var untilHeld = want{inLine: true, impatient: true}

func (c *Client) hold(ctx context.Context, key string, w want, fn func(ctx context.Context, token int64) error) error {
	l, err := c.take(ctx, ctx, key, w)
	if err != nil {
		return err
	}
	defer l.end(nil)
	return fn(l.ctx, l.token)
}

// Executions are keys that are held together by [Client.DoAll].
type Executions struct{ together }

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
	all, err := takeAll(ctx, keys, func(ctx context.Context, key string) (*Lock, error) { return c.take(ctx, ctx, key, untilHeld) })
	if err != nil {
		return err
	}
	defer all.end()
	return fn(Executions{all})
}
