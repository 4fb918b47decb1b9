package remote

import (
	"fmt"
	"slices"
)

// fair lets a world go on without anything more that goes wrong, until nobody waits and no key is held. It remembers the
// worlds from which that comes true.
func (s *search) fair(w *world) error {
	left := w.left
	w.left = [events]int8{}
	path := []uint64{s.fingerprint(w)}
	run := w
	if !s.isGood(path[0]) {
		run = w.clone()
		run.log, run.cover = nil, nil
	}
	w.left = left
	end, again := run.now+6*ttl, 0
	for !s.isGood(path[len(path)-1]) && run.unquiet() != "" {
		if again++; again == 60 || !run.goesOn(again > 30) { // what is refused at this time is asked again and again
			run.do(action{event: evTime})
			again = 0
		}
		switch {
		case run.bad != nil:
			return fmt.Errorf("%w, in a fair run", run.bad)
		case run.now >= end:
			return fmt.Errorf("waits for ever: %s", run.unquiet())
		}
		path = append(path, s.fingerprint(run))
	}
	for _, h := range path {
		s.good[h] = struct{}{}
	}
	return nil
}

func (s *search) isGood(h uint64) bool {
	_, ok := s.good[h]
	return ok
}

// goesOn lets something happen that takes no time, and reports whether there was anything. With again it leaves out calls that
// reach nobody.
func (w *world) goesOn(again bool) bool {
	p := &w.part
	anybody := slices.ContainsFunc(w.workers, func(x *worker) bool { return x.up })
	for _, x := range w.workers {
		if !x.up && !anybody {
			w.do(action{evStart, int8(x.slot), 0})
			return true
		}
	}
	if owner := w.workers[p.owner]; p.to >= 0 && owner.owns() && owner.alive() && !w.workers[p.to].alive() {
		w.do(action{event: evResume})
		return true
	}
	for _, c := range w.callers {
		if c.client == nil && c.phase != idle && c.phase != holds && !slices.ContainsFunc(w.calls, func(o *call) bool { return o.caller == c }) {
			c.phase = idle
			return true
		}
	}
	for i, c := range w.calls {
		if c.lost && c.kind == acquire && c.stage != sent && !c.gone {
			c.gone = true
			return true
		}
		if c.lost && c.stage == sent && !w.takes(c) {
			w.calls = slices.Delete(w.calls, i, i+1)
			return true
		}
	}
	list := w.actions(nil)
	slices.Reverse(list) // workers come before those who call them
	i := slices.IndexFunc(list, func(a action) bool { return a.event > events && a.event != evVain })
	if i < 0 && !again {
		i = slices.IndexFunc(list, func(a action) bool { return a.event == evVain })
	}
	if i >= 0 {
		w.do(list[i])
	}
	return i >= 0
}

// unquiet says who waits, or holds a key; "" if nobody does.
func (w *world) unquiet() string {
	if len(w.calls) > 0 {
		return fmt.Sprintf("%v is %v", w.calls[0], w.calls[0].stage)
	}
	for _, c := range w.callers {
		switch k := c.client; {
		case k == nil && c.phase != idle:
			return fmt.Sprintf("caller %d %v", c.slot, c.phase)
		case k != nil && (k.asks || len(k.holds) > 0 || k.waits > 0):
			return fmt.Sprintf("client %d has %d locks, and %d wait", c.slot, len(k.holds), k.waits)
		}
	}
	for _, x := range w.workers {
		if x.up && (len(x.machine.order) > 0 || len(x.machine.byID) > 0) {
			return fmt.Sprintf("%s has %v", x.name(), &x.machine)
		}
	}
	if p := &w.part; !p.opened || p.to >= 0 || len(p.written) > 0 {
		return "the partition is not served"
	}
	return ""
}
