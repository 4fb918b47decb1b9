package worker

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/keyway-go/keyway/gateway"
)

// nest looks for the execution that holds key along ctx, and begins one that
// runs within it, with the same token. The key stays held until both have ended.
// nested is false if there is none; if there is one, but the ownership was lost or
// the caller may not run within it, nested comes with an error.
func (k *keys) nest(ctx context.Context, key string, call bool) (x execution, nested bool, err error) {
	for c := innermost(ctx); c != nil; c = innermost(c.parent) {
		if c.part.keys != k || c.key != key || !c.enter() {
			continue
		}
		switch {
		case !call:
			err = fmt.Errorf("%w: %q, of %s", gateway.ErrNested, key, chainOf(ctx))
		case c.part.cancels.Load() != c.cancels:
			err = fmt.Errorf("%w: key %q is asked for within the execution that held it", gateway.ErrOwnershipLost, key)
		default:
			keepApart(ctx, c)
			r := runs.Get().(*run)
			r.part, r.parent, r.token, r.cancels, r.outer = c.part, ctx, c.token, c.cancels, c
			return execution{run: r, life: r.state.Load(), key: key}, true, nil
		}
		c.leave()
		return execution{}, true, err
	}
	return execution{}, false, nil
}

// keepApart keeps apart what runs along ctx, up to the execution
// of c, with other callers: they use what their first callers hold, in the midst of what these do.
func keepApart(ctx context.Context, c *runContext) {
	for inner := innermost(ctx); inner != c; inner = innermost(inner.parent) {
		if inner.joined != nil {
			inner.joined.KeepApart()
		}
	}
}

// enter begins an execution within that of c, unless it has ended.
func (c *runContext) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended && c.within == 0 {
		return false
	}
	c.within++
	return true
}

// leave ends an execution within that of c. The last one frees the key, if the
// execution of c has ended before.
func (c *runContext) leave() {
	c.mu.Lock()
	c.within--
	last := c.ended && c.within == 0
	c.mu.Unlock()
	if last {
		c.part.free(c.key, c.token, c.outer)
	}
}

// holds reports whether c's key is still held.
func (c *runContext) holds() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.ended || c.within > 0
}

// chainOf names the keys that are held along ctx, from the outermost on.
func chainOf(ctx context.Context) string {
	var keys []string
	for c := innermost(ctx); c != nil && len(keys) < maxHeld; c = innermost(c.parent) {
		keys = append(keys, strconv.Quote(c.key))
	}
	slices.Reverse(keys)
	return strings.Join(keys, ", ")
}
