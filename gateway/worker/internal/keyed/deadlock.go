package keyed

import (
	"context"
	"slices"
	"sync"

	"github.com/keyway-go/keyway/gateway"
)

// waitGraph knows the callers that wait for a key within an execution, and so hold other keys. If
// they would wait for each other in a circle, it fails the one whose outermost execution is the
// youngest. Callers that wait at another worker are not in the graph.
type waitGraph struct {
	mu    sync.Mutex              // guards what follows
	waits map[string][]*chainWait // by each key that the waiting chain holds
}

// chainWait is the wait of a chain of executions for a key.
type chainWait struct {
	chain  []*Context // that held their keys at the worker when the wait began, the innermost first
	key    string
	cancel context.CancelCauseFunc
	failed bool // to be left out; guarded by waitGraph.mu
}

// holds reports whether an execution of the chain still holds key.
func (v *chainWait) holds(key string) bool {
	return slices.ContainsFunc(v.chain, func(c *Context) bool { return c.key == key && c.holds() })
}

// WaitAlong records that the executions that ctx belongs to, if there are any, wait for key, until
// end is called. The context that it returns is ctx, and is cancelled with a
// [*gateway.DeadlockError] if the wait has to fail.
func (k *Keys) WaitAlong(ctx context.Context, key string) (_ context.Context, end func()) {
	v := &chainWait{key: key}
	for c := Innermost(ctx); c != nil; c = Innermost(c.parent) {
		if c.part.keys == k && c.holds() {
			v.chain = append(v.chain, c)
		}
	}
	if v.chain == nil {
		return ctx, func() {}
	}
	ctx, v.cancel = context.WithCancelCause(ctx)
	k.graph.add(v)
	return ctx, func() {
		k.graph.remove(v)
		v.cancel(nil)
	}
}

// add adds a wait, and fails as many as it takes so that there is no circle.
func (g *waitGraph) add(v *chainWait) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waits == nil {
		g.waits = make(map[string][]*chainWait)
	}
	for _, c := range v.chain {
		g.waits[c.key] = append(g.waits[c.key], v)
	}
	for !v.failed {
		circle := g.circleLocked(v)
		if circle == nil {
			break
		}
		young := 0
		for i := range circle {
			if circle[i].born() > circle[young].born() {
				young = i
			}
		}
		victim, before := circle[young], circle[(young+len(circle)-1)%len(circle)]
		victim.failed = true
		victim.cancel(&gateway.DeadlockError{Held: before.key, Key: victim.key})
	}
}

// born says how young the outermost execution of the chain is.
func (v *chainWait) born() uint64 { return v.chain[len(v.chain)-1].born }

// circleLocked returns a circle of waits that begins with v, or nil: the chain of each one holds
// the key that the wait before it waits for.
func (g *waitGraph) circleLocked(v *chainWait) []*chainWait {
	seen := map[string]bool{}
	var path []*chainWait
	var follow func(from *chainWait) bool
	follow = func(from *chainWait) bool {
		path = append(path, from)
		if v.holds(from.key) {
			return true
		}
		if !seen[from.key] {
			seen[from.key] = true
			for _, next := range g.waits[from.key] {
				if next != v && !next.failed && next.holds(from.key) && follow(next) {
					return true
				}
			}
		}
		path = path[:len(path)-1]
		return false
	}
	if !follow(v) {
		return nil
	}
	return path
}

func (g *waitGraph) remove(v *chainWait) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range v.chain {
		rest := slices.DeleteFunc(g.waits[c.key], func(other *chainWait) bool { return other == v })
		if len(rest) == 0 {
			delete(g.waits, c.key)
		} else {
			g.waits[c.key] = rest
		}
	}
}
