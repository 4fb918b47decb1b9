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
		one.endHold(nil)
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
