package remote

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"time"
)

// search explores everything that may happen in a scope, breadth first.
type search struct {
	sc    *scope
	limit int                // of states; 0 for none
	cover map[transition]int // transitions that were taken; may be nil
	seen  map[uint64]struct{}
	good  map[uint64]struct{} // worlds from which a fair run ends
	nodes []node
	buf   []byte
	parts [][]byte
}

// node is a world that a search reached.
type node struct {
	parent int32
	act    action
}

// outcome is what a search found.
type outcome struct {
	states, depth int
	ended         bool // there was nothing more to explore
	err           error
	trace         []string // of the violation, as commands of a transcript
}

func (o outcome) String() string {
	ended := ""
	if o.ended {
		ended = ", all of it"
	}
	return fmt.Sprintf("%7d states, %2d levels%s", o.states, o.depth, ended)
}

func (s *search) run() (out outcome) {
	type reached struct {
		w  *world
		id int32
	}
	s.seen, s.good = map[uint64]struct{}{}, map[uint64]struct{}{}
	s.nodes = []node{{parent: -1}}
	root := s.sc.root()
	root.cover = s.cover
	level := []reached{{root, 0}}
	var acts []action
	for ; len(level) > 0; out.depth++ {
		var deeper []reached
		for i, r := range level {
			level[i] = reached{}
			acts = r.w.actions(acts[:0])
			for j, a := range acts {
				w := r.w
				if j < len(acts)-1 { // as it was, a world is needed until its last action
					w = w.clone()
				}
				w.do(a)
				if w.bad == nil {
					h := s.fingerprint(w)
					if _, ok := s.seen[h]; ok {
						continue
					}
					s.seen[h] = struct{}{}
					if s.sc.fair {
						w.bad = s.fair(w)
					}
				}
				id := int32(len(s.nodes))
				s.nodes = append(s.nodes, node{r.id, a})
				if w.bad != nil {
					out.states, out.err, out.trace = len(s.nodes), w.bad, s.words(id)
					return out
				}
				deeper = append(deeper, reached{w, id})
			}
			if s.limit > 0 && len(s.nodes) > s.limit {
				out.states = len(s.nodes)
				return out
			}
		}
		level = deeper
	}
	out.states, out.ended = len(s.nodes), true
	return out
}

// words replays the way to a node and says what happens.
func (s *search) words(id int32) (trace []string) {
	var acts []action
	for i := id; s.nodes[i].parent >= 0; i = s.nodes[i].parent {
		acts = append(acts, s.nodes[i].act)
	}
	slices.Reverse(acts)
	w := s.sc.root()
	w.log = func(format string, args ...any) { trace = append(trace, fmt.Sprintf("  "+format, args...)) }
	for _, a := range acts {
		trace = append(trace, "> "+w.name(a))
		w.do(a)
	}
	return trace
}

// clone returns a world that goes on from here by itself.
func (w *world) clone() *world {
	c := *w
	var from, to []*Lock
	lock := func(l *Lock) *Lock {
		if l == nil {
			return nil
		}
		if i := slices.Index(from, l); i >= 0 {
			return to[i]
		}
		as := *l
		from, to = append(from, l), append(to, &as)
		return &as
	}
	c.limits = slices.Clone(w.limits)
	c.over = slices.Clone(w.over)
	c.workers = make([]*worker, len(w.workers))
	for i, x := range w.workers {
		as := *x
		as.w = &c
		as.keys.list = slices.Clone(x.keys.list)
		as.writes = slices.Clone(x.writes)
		m := &as.machine
		m.Host = &as
		m.done = memory{slices.Clone(m.done.order), maps.Clone(m.done.was)}
		m.order = slices.Clone(m.order)
		for j, l := range m.order {
			m.order[j] = lock(l)
		}
		if m.byID != nil {
			byID := make(map[ID]*Lock, len(m.byID))
			for id, l := range m.byID {
				byID[id] = lock(l)
			}
			m.byID = byID
		}
		c.workers[i] = &as
	}
	c.callers = make([]*caller, len(w.callers))
	for i, x := range w.callers {
		as := *x
		if x.client != nil {
			k := *x.client
			k.holds = slices.Clone(k.holds)
			k.unsure = slices.Clone(k.unsure)
			as.client = &k
		}
		c.callers[i] = &as
	}
	c.calls = make([]*call, len(w.calls))
	for i, x := range w.calls {
		as := *x
		as.caller, as.lock, as.back = c.callers[x.caller.slot], lock(x.lock), lock(x.back)
		c.calls[i] = &as
	}
	return &c
}

var seed = maphash.MakeSeed()

// fingerprint writes down a world so that two worlds that behave alike are written alike: times are relative to now.
func (s *search) fingerprint(w *world) uint64 {
	p := &printer{w: w, buf: s.buf[:0]}
	for _, n := range w.left {
		p.int(int64(n))
	}
	p.part(&w.part)
	for _, t := range w.told {
		p.int(t.token, int64(t.caller))
		p.bools(t.shared)
	}
	p.int(w.seen.token)
	for _, o := range w.over {
		if o.until > w.now {
			p.int(int64(o.id[0]), int64(o.id[1]), int64(o.number))
			p.times(o.until)
		}
	}
	for _, c := range w.callers {
		if c.client != nil {
			p.int(int64(c.id[1]))
			p.client(c)
			continue
		}
		p.int(int64(c.phase), int64(c.number), int64(c.id[1]))
		p.bools(c.alone, c.claimed, c.shared, c.hold.shared, c.key == "k", c.hold.key == "k", c.lease > 0)
		p.int(c.hold.token)
		if c.phase == releases {
			p.times(c.ended)
		}
		if c.phase == holds {
			p.times(c.hold.cancel, c.hold.until)
		}
	}
	for _, x := range w.workers {
		p.worker(x)
	}
	s.parts = s.parts[:0]
	start := len(p.buf)
	for i, c := range w.calls { // in any order, but for those that wait for a key
		from := len(p.buf)
		p.call(c, i)
		s.parts = append(s.parts, p.buf[from:])
	}
	var sum uint64
	for _, part := range s.parts {
		sum += maphash.Bytes(seed, part)
	}
	p.buf = binary.LittleEndian.AppendUint64(p.buf[:start], sum)
	s.buf = p.buf
	return maphash.Bytes(seed, p.buf)
}

type printer struct {
	w   *world
	buf []byte
}

func (p *printer) int(list ...int64) {
	for _, n := range list {
		p.buf = binary.AppendVarint(p.buf, n)
	}
}

func (p *printer) bools(list ...bool) {
	n := int64(0)
	for i, b := range list {
		if b {
			n |= 1 << i
		}
	}
	p.int(n)
}

// times writes instants; what has passed long ago has merely passed.
func (p *printer) times(list ...time.Duration) {
	for _, t := range list {
		p.int(max(int64((t-p.w.now)/time.Second), -20))
	}
}

func (p *printer) string(s string) { p.buf = append(append(p.buf, s...), 0) }

func (p *printer) part(s *part) {
	p.int(s.epoch, int64(s.owner), int64(s.to), s.moved)
	owner := p.w.workers[s.owner]
	p.bools(owner.life == s.life, s.opened, s.until == 0)
	p.string(s.locks)
	p.times(s.until)
	for _, k := range s.written {
		p.string(k.Text)
	}
	if !owner.machine.open {
		p.times(s.closedAt)
	}
	if s.locks != "" {
		p.times(s.listedAt)
	}
}

func (p *printer) worker(x *worker) {
	p.bools(x.up, x.cut, x.behind, x.lost, x.cancelled, x.owes, x.served > 0, x.machine.open)
	p.times(x.confirmed, x.over)
	p.string(x.listed)
	for _, f := range x.writes {
		p.string(f.lock.ID)
		p.string(f.lock.Text)
		p.bools(f.done, f.epoch == p.w.part.epoch)
	}
	p.int(x.keys.minted)
	for _, k := range x.keys.list {
		if k.token != 0 {
			p.string(k.name)
			p.int(k.token, int64(k.sharers), k.heir.token, int64(k.heir.sharers))
			p.bools(k.listed, k.remote, k.heir.listed)
		}
	}
	m := &x.machine
	list := m.order
	if len(list) > 1 {
		list = slices.SortedFunc(slices.Values(list), func(a, b *Lock) int { return cmp.Or(cmp.Compare(a.Token, b.Token), bytes.Compare(a.ID[:2], b.ID[:2])) })
	}
	for _, l := range list {
		p.lock(l, x)
		p.times(p.w.limitOf(l.ID, l.Token).until)
	}
	for _, e := range m.done.order {
		p.int(int64(e.id[0]), int64(e.id[1]), int64(e.call), int64(m.done.was[e]))
	}
	if len(m.done.order) > 0 {
		p.times(m.forget)
	}
}

func (p *printer) lock(l *Lock, x *worker) {
	p.int(int64(l.ID[0]), int64(l.ID[1]), int64(l.state), l.Token, int64(l.Call), int64(l.end))
	p.bools(l.Shared, l.found, l.Key == "k", l.cancels == x.cancels, x.machine.byID[l.ID] == l)
	p.times(l.expires)
	p.int(int64(l.Lease/time.Second), int64(l.stored/time.Second), int64(l.wanted/time.Second))
}

func (p *printer) call(c *call, place int) {
	p.int(int64(c.caller.slot), int64(c.id[1]), int64(c.kind), int64(c.number), int64(c.stage), int64(c.at), c.token)
	p.bools(c.key == "k", c.shared, c.pushed, c.gone)
	if c.kind != release && c.kind != abandon {
		p.times(c.sent)
	}
	if c.stage == queued {
		p.int(int64(place))
	}
	for _, l := range []*Lock{c.lock, c.back} {
		p.bools(l == nil)
		if l != nil && c.stage != answered {
			p.lock(l, p.w.workers[c.at])
		}
	}
	if c.at >= 0 && c.stage != answered {
		p.bools(c.cancel == p.w.workers[c.at].cancels)
	}
	if c.caller.client != nil {
		p.bools(c.owner, c.lost, c.repeated)
		p.int(int64(c.to), int64(c.turns), int64(c.lease))
	}
	if c.stage == answered {
		a := &c.answer
		if c.caller.client != nil {
			p.bools(a.freed)
			p.int(int64(a.promise.Cancel), int64(a.promise.Surrender), int64(a.lease), a.next, int64(a.turns))
		}
		p.bools(a.ok, a.grant.shared, a.grant.key == "k")
		p.int(int64(a.what), a.grant.token, int64(a.cancel/time.Second), int64(a.until/time.Second))
	}
}
