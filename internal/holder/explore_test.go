package holder

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"testing"
	"time"
)

// scope is a world to begin with.
type scope struct {
	name string
	w    world
}

// start is a world whose process asks for the key, which is free.
func start(turns int8, left budget) world {
	w := world{policy: &Policy{TTL: ttl, TurnsFor: Never}, step: ttl / 10, waits: turns, left: left, heir: 1}
	w.send(inRenewal, acquire, owner)
	return w
}

func scopes() []scope {
	extends := func(w world, terms ...time.Duration) world {
		copy(w.extends[:], terms)
		w.left.extends = int8(len(terms))
		return w
	}
	busy := func(w world) world {
		w.other = true
		return w
	}
	coarse := func(w world) world {
		w.step = ttl / 5
		return w
	}
	prompt := func(w world) world {
		w.prompt = true
		return w
	}
	ageless := start(0, budget{stray: 1, others: 1, stalls: 1})
	ageless.ageless = true
	store := func(p Policy, w world) world {
		p.TTL, p.Keeper = ttl, Store
		p.Margin, p.Every, p.TurnsFor = cmp.Or(p.Margin, ttl/20), cmp.Or(p.Every, ttl/3), cmp.Or(p.TurnsFor, Never)
		w.policy, w.calls[inRenewal].term = &p, ttl
		return coarse(w)
	}
	fast := store(Policy{Margin: ttl / 5}, start(0, budget{lost: 2, others: 1}))
	fast.fast = ttl / 5
	return []scope{
		{"store, calls lost", store(Policy{}, start(0, budget{lost: 2, others: 1, stalls: 1}))},
		{"store, calls late", store(Policy{}, start(0, budget{stray: 1, others: 1, stalls: 1}))},
		{"store, key waited for", busy(store(Policy{}, start(2, budget{lost: 1, others: 1, stalls: 1})))},
		{"store, its clock is fast", fast},
		{"store, nothing is renewed", extends(store(Policy{Every: Never}, start(0, budget{lost: 1, others: 1})), ttl)},
		{"store, extension to less, then to more", extends(store(Policy{}, start(1, budget{lost: 2, others: 1})), 2*ttl/5, 2*ttl)},
		{"store, extension to less, late", extends(store(Policy{}, start(1, budget{stray: 1, others: 1})), 2*ttl/5)},
		{"store, turns for a while", store(Policy{TurnsFor: ttl / 2}, start(3, budget{lost: 1, others: 1, stalls: 1}))},
		{"store, work goes on", store(Policy{Persist: true}, start(2, budget{lost: 2, others: 1, stalls: 1}))},
		{"store, work goes on, calls late", store(Policy{Persist: true}, start(1, budget{stray: 1, lost: 1, others: 1, stalls: 1}))},
		{"store, it forgets", store(Policy{}, start(1, budget{lost: 1, forgets: 1, others: 1}))},
		{"store, it forgets, work goes on, extensions", extends(store(Policy{Persist: true}, start(0, budget{forgets: 1, others: 1})), 2*ttl, 2*ttl/5)},
		{"store, another process goes on", store(Policy{}, start(0, budget{lost: 1, others: 1, stalls: 1, leaves: 1}))},
		{"store, machine suspended, client closed", store(Policy{}, start(1, budget{lost: 1, suspends: 1, others: 1, closes: 1}))},
		{"calls late by any time", coarse(ageless)},
		{"key waited for", busy(start(0, budget{lost: 1, others: 1, stalls: 1}))},
		{"calls lost", start(0, budget{lost: 2, others: 1})},
		{"calls late", start(0, budget{stray: 1, others: 1, stalls: 1})},
		{"calls lost, releases forgotten", coarse(start(0, budget{lost: 2, others: 1, forgets: 1}))},
		{"calls late, releases forgotten", coarse(start(0, budget{stray: 1, others: 1, forgets: 1}))},
		{"move, calls lost", coarse(start(0, budget{lost: 1, moves: 1, others: 1, stalls: 1}))},
		{"move, calls late", coarse(start(0, budget{stray: 1, moves: 1, others: 1}))},
		{"two moves", coarse(start(0, budget{moves: 2, others: 1}))},
		{"crash", coarse(start(0, budget{lost: 1, crashes: 1, others: 1, stalls: 1}))},
		{"move and crash", coarse(start(0, budget{moves: 1, crashes: 1, others: 1}))},
		{"owner's session lost", coarse(start(0, budget{lost: 1, cuts: 1, others: 1}))},
		{"owner's session renewed late", prompt(start(0, budget{cuts: 1, heals: 1, others: 1}))},
		{"turns, owner's session renewed late", prompt(start(1, budget{cuts: 1, heals: 1}))},
		{"turns", coarse(start(3, budget{lost: 1, others: 1, stalls: 1}))},
		{"turns, owner's session lost", coarse(start(2, budget{cuts: 1, others: 1}))},
		{"turns, key waited for", busy(start(2, budget{others: 1, stalls: 1}))},
		{"turns, move", coarse(start(2, budget{lost: 1, moves: 1, others: 1}))},
		{"turns, crash", coarse(start(2, budget{crashes: 1, others: 1, stalls: 1}))},
		{"turns, extension", coarse(extends(start(1, budget{lost: 1, others: 1}), 2*ttl/5))},
		{"extension to less", coarse(extends(start(0, budget{lost: 2, others: 1}), 2*ttl/5))},
		{"extension to less, late", coarse(extends(start(0, budget{stray: 1, others: 1}), 2*ttl/5))},
		{"extension to less, then to more", coarse(extends(start(0, budget{lost: 1, others: 1}), 2*ttl/5, ttl))},
		{"extension to less, late, then to more", coarse(extends(start(0, budget{stray: 1, others: 1, stalls: 1}), 2*ttl/5, ttl))},
		{"extension to less, move", coarse(extends(start(0, budget{moves: 1, others: 1}), 2*ttl/5))},
		{"extension to more, then to less", coarse(extends(start(0, budget{lost: 1, others: 1}), 2*ttl, 2*ttl/5))},
		{"extension to more, crash", coarse(extends(start(0, budget{crashes: 1, others: 1}), 2*ttl))},
		{"machine suspended", coarse(start(1, budget{suspends: 1, others: 1}))},
		{"process dies", coarse(start(1, budget{moves: 1, others: 1, deaths: 1}))},
		{"client closed", coarse(start(1, budget{lost: 1, others: 1, closes: 1}))},
	}
}

// each calls yield with every world that may follow.
func (w *world) each(yield func(string, world)) {
	try := func(name string, f func(n *world)) {
		n := *w
		f(&n)
		n.confirmAll()
		n.check()
		yield(name, n)
	}
	spend := func(name string, of func(*budget) *int8, f func(n *world)) {
		if *of(&w.left) > 0 {
			try(name, func(n *world) {
				n.faults = true
				*of(&n.left)--
				f(n)
			})
		}
	}
	late := false
	for slot := range inStray {
		c := w.calls[slot]
		if c.kind == none || w.dead {
			continue
		}
		name := kindNames[c.kind]
		if c.answered {
			try("answer to "+name, func(n *world) { n.receive(slot) })
		} else {
			w.carryOut(slot, name, try)
		}
		late = late || c.kind != acquire && w.instant().Mono-c.sent.Mono >= slow && (c.answered || c.to != owner || w.serving != owner && !w.down)
		away := c.to != owner && c.to != w.serving
		for _, giveUp := range []bool{false, true} {
			if giveUp && (c.kind == acquire || c.kind == renewal && c.to != owner) || !giveUp && c.kind == extension && c.answered {
				continue
			}
			suffix := ""
			if giveUp {
				suffix = ", given up"
			}
			spend(name+" lost"+suffix, losses, func(n *world) { n.lose(slot, true, false, giveUp) })
			if away && !giveUp {
				spend(name+" lost, owner known", losses, func(n *world) { n.lose(slot, true, true, false) })
			}
			if !c.answered && w.left.stray > 0 && w.calls[inStray].kind == none {
				spend(name+" late"+suffix, stray, func(n *world) {
					n.calls[inStray] = n.calls[slot]
					n.lose(slot, true, false, giveUp)
				})
			}
		}
		switch {
		case c.answered:
		case c.to == owner && (w.serving == owner || w.down): // nobody answers
			try(name+" in vain", func(n *world) { n.lose(slot, false, false, c.kind != acquire) })
		case c.to != owner && w.crashed[c.to]:
			try(name+" in vain", func(n *world) { n.lose(slot, false, away, false) })
		}
	}
	if c := w.calls[inStray]; c.kind != none {
		late = late || !w.ageless && w.instant().Mono-c.sent.Mono >= slow
		try("late "+kindNames[c.kind]+" is dropped", func(n *world) { n.calls[inStray] = call{} })
		w.carryOut(inStray, "late "+kindNames[c.kind], func(name string, f func(*world)) {
			try(name, func(n *world) { f(n); n.calls[inStray] = call{} })
		})
	}
	w.process(try, spend)
	w.owners(try, spend)
	if !late {
		try("time passes", func(n *world) { n.pass(false); n.tick() })
	}
	if w.have && !w.dead {
		spend("the process is stopped", stalls, func(n *world) {
			if n.calls[inStray].kind == acquire && !n.ageless {
				n.calls[inStray] = call{} // it is not as late
			}
			for range int(8 * ttl / 10 / n.step) {
				n.pass(false)
			}
		})
		spend("the machine is suspended", suspends, func(n *world) {
			if n.calls[inStray].kind == acquire && !n.ageless {
				n.calls[inStray] = call{}
			}
			for range int(5 * ttl / 10 / n.step) {
				n.pass(true)
			}
		})
	}
}

// confirmAll goes on with a lock that was granted, as its shell does at once.
func (w *world) confirmAll() {
	if w.have && !w.dead {
		w.confirm()
	}
}

func losses(b *budget) *int8   { return &b.lost }
func stray(b *budget) *int8    { return &b.stray }
func stalls(b *budget) *int8   { return &b.stalls }
func suspends(b *budget) *int8 { return &b.suspends }

// carryOut has a request arrive.
func (w *world) carryOut(slot int, name string, try func(string, func(*world))) {
	for _, slowStore := range []bool{false, true} {
		n := *w
		if n.apply(&n.calls[slot], slowStore) && (!slowStore || n.lock.kept) {
			try(name+" arrives", func(n *world) { n.apply(&n.calls[slot], slowStore) })
		}
	}
}

// process is what the callers and the process do.
func (w *world) process(try func(string, func(*world)), spend func(string, func(*budget) *int8, func(*world))) {
	if !w.have || w.dead || w.told != Wait {
		return
	}
	switch {
	case w.l.state == passing || w.l.state == closed && !w.begun || w.l.state == lost && !w.begun:
		try("the caller begins", (*world).begin)
		try("the caller gives up", (*world).end)
	case w.begun:
		try("the caller ends", (*world).end)
	}
	idle := w.begun && w.l.state == working && w.l.course == known
	switch {
	case idle && w.left.extends > 0 && w.policy.Keeper == Store:
		try("the caller extends", func(n *world) {
			n.left.extends--
			n.l.Extend(n.extends[0])
			n.extends[0], n.extends[1] = n.extends[1], 0
			n.send(inRenewal, renewal, n.peer)
		})
	case w.policy.Keeper == Worker && w.begun && w.l.state == working && w.calls[inExtension].kind == none && w.left.extends > 0:
		try("the caller extends", func(n *world) {
			n.left.extends--
			term := n.l.Extend(n.extends[0])
			n.extends[0], n.extends[1] = n.extends[1], 0
			n.send(inExtension, extension, owner)
			n.calls[inExtension].term = term
		})
	}
	if w.l.state < closed && w.l.state != granted {
		spend("the client is closed", func(b *budget) *int8 { return &b.closes }, func(n *world) {
			n.l.Close()
			n.closed, n.waits = true, 0
		})
	}
	if idle {
		spend("another process goes on", func(b *budget) *int8 { return &b.leaves }, (*world).leave)
	}
	spend("the process dies", func(b *budget) *int8 { return &b.deaths }, func(n *world) {
		n.dead, n.begun, n.waits = true, false, 0
		n.calls[inRenewal], n.calls[inExtension], n.calls[inRelease] = call{}, call{}, call{}
	})
}

// owners is what happens at the owners.
func (w *world) owners(try func(string, func(*world)), spend func(string, func(*budget) *int8, func(*world))) {
	if w.free() && w.left.others > 0 {
		try("another client gets the key", func(n *world) {
			n.left.others--
			n.other = true
			n.token++
			n.see(n.token)
		})
	}
	if w.lock.live {
	}
	if w.other {
		try("the other client ends", func(n *world) { n.other = false })
	}
	if w.lock.kept {
		try("the store removes the lock", func(n *world) { n.lock.kept = false })
	}
	if w.serving != owner && !w.down && !w.cut {
		if !w.crashed[1-w.serving] {
			spend("the partition moves", func(b *budget) *int8 { return &b.moves }, func(n *world) {
				n.heir, n.serving = 1-n.serving, owner
				if n.moved = n.ghost; n.lock.live {
					n.moved = max(n.moved, n.lock.expires)
				}
			})
		}
		spend("the owner crashes", func(b *budget) *int8 { return &b.crashes }, func(n *world) { n.down, n.heir, n.crashed[n.serving] = true, 1-n.serving, true })
		spend("the owner's session is not renewed", func(b *budget) *int8 { return &b.cuts }, func(n *world) { n.cut, n.heir = true, 1-n.serving })
		spend("the owner forgets", func(b *budget) *int8 { return &b.forgets }, func(n *world) {
			if n.memory = 0; n.policy.Keeper == Store {
				n.forgot, n.lock.live = n.lock.live, false
			}
		})
	}
	if w.cut && w.session+ttl*8/10 > w.now {
		spend("the owner's session is renewed", func(b *budget) *int8 { return &b.heals }, func(n *world) { n.cut, n.session = false, n.now })
	}
	if w.serving == owner {
		try("the next owner serves", func(n *world) { n.serving = n.heir })
	}
	if (w.down || w.cut) && w.session+ttl <= w.now {
		try("another worker claims the partition", (*world).claim)
	}
}

// claim has another worker serve what a dead one did.
func (w *world) claim() {
	w.lock.live = w.lock.written && (w.lock.live || w.lock.kept) && w.lock.expires > w.now
	w.serving, w.down, w.cut, w.memory, w.ghost, w.lock.kept = w.heir, false, false, 0, w.moved, false
	w.session = w.now
	w.token += 10
}

// fair runs a world on without anything that goes wrong until the lock is over. good are the fingerprints from which it
// is known to end.
func (w world) fair(seed maphash.Seed, good map[uint64]struct{}) error {
	var path []uint64
	w.left = budget{}
	for end := w.now + 12*ttl; w.now < end; w.pass(false) {
		path = append(path, w.fingerprint(seed))
		if _, known := good[path[len(path)-1]]; known || w.ended() {
			for _, h := range path {
				good[h] = struct{}{}
			}
			return nil
		}
		if w.other = false; w.serving == owner {
			w.serving = w.heir
		}
		if (w.down || w.cut) && w.session+ttl <= w.now {
			w.claim()
		}
		w.lock.kept = false
		w.tick()
		for busy := true; busy; {
			busy = false
			for slot := range w.calls {
				c := &w.calls[slot]
				switch {
				case c.kind == none:
					continue
				case slot == inStray:
					*c = call{}
				case c.answered:
					w.receive(slot)
				case w.apply(c, false):
				case c.to != owner:
					w.lose(slot, false, c.to != w.serving, false)
					busy = busy || c.kind != none && c.to == owner
					continue
				default:
					continue
				}
				busy = true
			}
			w.confirmAll()
			if w.have && !w.dead && !w.begun && (w.l.state == passing || w.l.state == lost || w.l.state == closed) {
				w.begin()
				busy = true
			}
			if w.begun {
				w.end()
				busy = true
			}
			if w.check(); w.bad != "" {
				return fmt.Errorf("%s, in a fair run", w.bad)
			}
		}
	}
	return fmt.Errorf("%w: it is %v, its course %v", errEndless, w.l.state, w.l.course)
}

// ended reports whether nobody waits for the lock or keeps it.
func (w *world) ended() bool {
	return w.l.state == over && w.told != Wait && w.waits == 0 || w.dead && !w.lock.live
}

// node is a world that was reached.
type node struct {
	parent int32
	name   string
}

// explore searches a scope breadth first, to its end or, unless it is 0, to about that many states.
func explore(sc scope, limit int) (states int, trace []string, err error) {
	seed := maphash.MakeSeed()
	seen := map[uint64]struct{}{sc.w.fingerprint(seed): {}}
	nodes, good := []node{{parent: -1}}, map[uint64]struct{}{}
	type reached struct {
		w  world
		id int32
	}
	for level := []reached{{w: sc.w}}; len(level) > 0 && (limit == 0 || len(nodes) < limit); {
		var deeper []reached
		for _, r := range level {
			if r.w.told != Wait || r.w.dead {
				continue
			}
			r.w.each(func(name string, n world) {
				h := n.fingerprint(seed)
				if _, known := seen[h]; known || err != nil {
					return
				}
				seen[h] = struct{}{}
				id := int32(len(nodes))
				nodes = append(nodes, node{r.id, name})
				switch {
				case n.bad != "":
					err = fmt.Errorf("%s", n.bad)
				default:
					err = n.fair(seed, good)
				}
				if err != nil {
					for i := id; i > 0; i = nodes[i].parent {
						trace = append(trace, nodes[i].name)
					}
					slices.Reverse(trace)
				}
				deeper = append(deeper, reached{n, id})
			})
			if err != nil {
				return len(nodes), trace, err
			}
		}
		level = deeper
	}
	return len(nodes), nil, nil
}

// TestExplore searches every scope to its end for a caller that works with what another client has, a token that falls, an
// Unlock that says what is not true, and a lock that nothing ends. Under the race detector, which has nothing to find in a
// search by a single goroutine, it searches a part.
func TestExplore(t *testing.T) {
	total, began := 0, time.Now()
	for _, sc := range scopes() {
		t.Run(sc.name, func(t *testing.T) {
			at, limit := time.Now(), 0
			if underRace {
				limit = 2000
			}
			states, trace, err := explore(sc, limit)
			total += states
			t.Logf("%d states, in %v", states, time.Since(at).Round(time.Millisecond))
			if err != nil {
				t.Errorf("%v after\n%s", err, strings.Join(trace, "\n"))
			}
		})
	}
	t.Logf("%d states in %d scopes, in %v", total, len(scopes()), time.Since(began).Round(time.Millisecond))
}
