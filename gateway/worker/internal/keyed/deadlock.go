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
	keys   *Keys
	chain  *Context // the innermost execution
	key    string
	cancel context.CancelCauseFunc
	failed bool // to be left out; guarded by waitGraph.mu
}

// held yields the executions of the chain that still hold their keys at the worker,
// from the innermost on.
func (v *chainWait) held(yield func(*Context) bool) {
	for c := v.chain; c != nil; c = Innermost(c.parent) {
		if c.part.keys == v.keys && c.holds() && !yield(c) {
			return
		}
	}
}

func (v *chainWait) holds(key string) bool {
	for c := range v.held {
		if c.key == key {
			return true
		}
	}
	return false
}

func (v *chainWait) born() (born uint64) {
	for c := range v.held {
		born = c.born
	}
	return born
}

// WaitAlong records that the executions that ctx belongs to, if there are any, wait for key, until
// end is called. The context that it returns is ctx, and is cancelled with a
// [*gateway.DeadlockError] if the wait has to fail.
func (k *Keys) WaitAlong(ctx context.Context, key string) (_ context.Context, end func()) {
	c := Innermost(ctx)
	if c == nil {
		return ctx, func() {}
	}
	g := &k.graph
	ctx, cancel := context.WithCancelCause(ctx)
	v := &chainWait{keys: k, chain: c, key: key, cancel: cancel}
	var keys []string
	for c := range v.held {
		if !slices.Contains(keys, c.key) {
			keys = append(keys, c.key)
		}
	}
	for victim, err := range g.add(v, keys) {
		victim.cancel(err)
	}
	return ctx, func() {
		g.remove(v, keys)
		cancel(nil)
	}
}

// add adds a wait of a chain that holds keys, and returns the waits that have to
// fail so that there is no circle.
func (g *waitGraph) add(v *chainWait, keys []string) map[*chainWait]error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waits == nil {
		g.waits = make(map[string][]*chainWait)
	}
	for _, key := range keys {
		g.waits[key] = append(g.waits[key], v)
	}
	victims := map[*chainWait]error{}
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
		victims[victim] = &gateway.DeadlockError{Held: before.key, Key: victim.key}
	}
	return victims
}

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

func (g *waitGraph) remove(v *chainWait, keys []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, key := range keys {
		rest := slices.DeleteFunc(g.waits[key], func(other *chainWait) bool { return other == v })
		if len(rest) == 0 {
			delete(g.waits, key)
		} else {
			g.waits[key] = rest
		}
	}
}
