package handoff

import (
	"fmt"
	"slices"
	"strings"
)

// search explores everything that may happen in a scope, breadth first.
type search struct {
	sc       *scope
	off      guard
	storeOff storeGuard
	limit    int // of states; 0 for none

	seen  map[uint64]struct{}
	good  map[uint64]struct{} // worlds from which all ends well, whatever the budget
	nodes []node
	next  []action // that may follow the latest step
	print fingerprinter
}

// node is a world that a search reached.
type node struct {
	parent int32
	act    action
}

// reached is a world whose successors are still to be found.
type reached struct {
	w    *world
	id   int32 // of its node
	next []action
}

// outcome is what a search found.
type outcome struct {
	states int
	fair   int // worlds from which a fair schedule was run to its end
	depth  int
	ended  bool // there was nothing more to explore
	err    error
	trace  []string // of the violation, in words
	steps  int
}

const ttl = 1000 // of the worlds that are searched

// timing makes a searched world's heartbeat as slow as the protocol bears.
func timing(m *Machine) {
	m.renewEvery = m.cfg.TTL * 3 / 10
	m.pollEvery = m.cfg.TTL * 3 / 10
	m.retryEvery = m.cfg.TTL * 3 / 10
	m.drift = m.cfg.TTL * 3 / 10
}

func (s *search) root() *world {
	w := newWorld(s.sc, ttl, s.off, s.storeOff)
	if !s.sc.cold {
		left, starts := w.left, w.starts
		w.settle(2 * ttl)
		w.left, w.starts, w.past = left, starts, nil
	}
	if s.sc.begin != nil {
		s.sc.begin(w)
	}
	w.stop = w.now + s.sc.until
	return w
}

func (s *search) run() outcome {
	s.seen = map[uint64]struct{}{}
	s.good = map[uint64]struct{}{}
	root := s.root()
	s.seen[root.fingerprint(&s.print, true)] = struct{}{}
	s.nodes = []node{{parent: -1}}
	out := outcome{}
	for level := []reached{{w: root, next: root.actions(nil)}}; len(level) > 0; out.depth++ {
		var deeper []reached
		for i, r := range level {
			level[i] = reached{}
			for j, a := range r.next {
				w := r.w
				if j < len(r.next)-1 { // as it was, a world is needed until its last action
					w = w.clone()
				}
				s.step(w, a)
				if w.bad == nil {
					h := w.fingerprint(&s.print, true)
					if _, ok := s.seen[h]; ok {
						w.drop()
						continue
					}
					s.seen[h] = struct{}{}
				}
				id := int32(len(s.nodes))
				s.nodes = append(s.nodes, node{r.id, a})
				if w.bad == nil && s.sampled(int(id)) {
					out.fair++
					end := w.clone()
					w.bad = s.fair(end)
					end.drop()
				}
				if w.bad != nil {
					out.err = w.bad
					out.states = len(s.nodes)
					out.trace, out.steps = s.words(id)
					return out
				}
				deeper = append(deeper, reached{w, id, slices.Clone(s.next)})
			}
			if s.limit > 0 && len(s.nodes) > s.limit {
				out.states = len(s.nodes)
				return out
			}
		}
		level = deeper
	}
	out.states = len(s.nodes)
	out.ended = true
	return out
}

// step lets an action happen, and then what must, as long as there is only one thing that can, and that takes no
// time. Worlds in between have one successor each and are no states of the search: what breaks a promise of the
// protocol is noticed when it happens, and how a fair schedule ends does not depend on them.
func (s *search) step(w *world, a action) {
	for w.do(a); w.bad == nil; w.do(s.next[0]) {
		s.next = w.actions(s.next[:0])
		if len(s.next) != 1 || s.next[0].kind == actPass {
			return
		}
	}
}

// sampled picks the worlds from which a fair schedule is run.
func (s *search) sampled(id int) bool { return !s.sc.untimed && id%4 == 0 }

// words replays the way to a node and says what happens.
func (s *search) words(id int32) (trace []string, steps int) {
	var acts []action
	for i := id; s.nodes[i].parent >= 0; i = s.nodes[i].parent {
		acts = append(acts, s.nodes[i].act)
	}
	slices.Reverse(acts)
	w := s.root()
	w.log = func(format string, args ...any) { trace = append(trace, fmt.Sprintf(format, args...)) }
	for _, a := range acts {
		s.step(w, a)
	}
	if w.bad != nil {
		return append(trace, "=> "+w.bad.Error()), len(acts)
	}
	trace = append(trace, "-- from here on, a fair schedule without faults:")
	if err := s.fair(w); err != nil {
		trace = append(trace, "=> "+err.Error())
	}
	return trace, len(acts)
}

// fair runs a world on without any more faults, with every message delivered,
// every handler ending and every dead worker restarted, and reports an error
// unless all ends well: every partition is served by the worker that the ring
// wants, and no residue is left.
func (s *search) fair(w *world) error {
	var path []uint64
	end := w.now + 15*ttl
	for w.now < end {
		w.soothe()
		if w.bad != nil {
			return w.bad
		}
		h := w.fingerprint(&s.print, false)
		_, known := s.good[h]
		if known || w.well() == "" {
			s.good[h] = struct{}{}
			for _, h := range path {
				s.good[h] = struct{}{}
			}
			return nil
		}
		if w.log == nil {
			path = append(path, h)
		}
		w.pass()
	}
	return fmt.Errorf("liveness: after 15 TTL without faults %s", w.well())
}

// soothe lets everything happen at once that is good.
func (w *world) soothe() {
	w.calm = true
	for i := len(w.msgs) - 1; i >= 0; i-- {
		w.msgs[i].slow = false
	}
	for _, p := range w.procs {
		p.blind = false
		if p.paused >= 0 {
			w.do(action{kind: actResume, a: int8(p.slot)})
			w.step(p, Tick{})
		}
	}
	w.drain()
	for _, p := range w.procs {
		for i := range p.tables {
			if p.tables[i].closing {
				p.tables[i].open, p.tables[i].closing = false, false
			}
		}
		for len(p.execs) > 0 {
			if !p.execs[0].running {
				w.goOn(p, 0, true)
				continue
			}
			w.end(p, 0)
		}
		w.drain()
		over := p.life > 0 && !p.up && !p.leaving || p.up && p.lost && !p.leaving
		if over {
			w.respawn(p)
		}
		if !p.up {
			p.noticed = true
		}
	}
	w.drain()
}

// well says what is still wrong with a world; "" if nothing is.
func (w *world) well() string {
	active := 0
	for _, p := range w.procs {
		switch {
		case !p.up:
		case p.leaving:
			return p.name + " has not left"
		case p.m.phase != phaseLive:
			return fmt.Sprintf("%s is %v", p.name, p.m.phase)
		case len(p.before) > 0:
			return p.before[0].me() + " has not been released"
		case len(p.m.running)+len(p.m.inherited)+len(p.m.clears) > 0:
			return p.name + " waits for residue"
		case len(p.locks)+len(p.m.listed)+len(p.m.moves) > 0:
			return p.name + " has locks"
		default:
			active++
		}
	}
	for part := range w.store.parts {
		if rs := w.store.parts[part].residue; len(rs) > 0 {
			return fmt.Sprintf("residue is left in partition %d: %s", part, residue(rs))
		}
		if active == 0 {
			continue
		}
		if s := w.store.parts[part].locks; s != "" {
			return fmt.Sprintf("locks are left in partition %d: %s", part, lockList(s))
		}
		if n := len(w.store.parts[part].written); n > 0 {
			return fmt.Sprintf("%d written locks are left in partition %d", n, part)
		}
		for _, slot := range w.sc.views[w.ring][part] {
			if p := w.procs[slot]; p.up && !p.leaving {
				if p.m.parts[part].state != stateServing || !p.tables[part].open || len(p.tables[part].blocked) > 0 {
					return fmt.Sprintf("partition %d is not served by %s (record %s)", part, p.name, record(w.store.parts[part].record))
				}
				break
			}
		}
	}
	return ""
}

func (o outcome) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d states, %d levels", o.states, o.depth)
	if o.ended {
		b.WriteString(", all of it")
	}
	return b.String()
}
