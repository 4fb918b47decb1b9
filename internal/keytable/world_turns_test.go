package keytable

import (
	"cmp"
	"slices"
)

// waitFor returns who waits for a key, for any if that is empty.
func (w *world) waitFor(key string) (callers []*caller) {
	for _, c := range w.callers {
		if c.queued() && (c.key == key || key == "") {
			callers = append(callers, c)
		}
	}
	return callers
}

// grants looks at who has been granted a key in the last step.
func (w *world) grants() {
	fresh := map[string][]*caller{}
	for _, c := range w.callers {
		if c.phase == "waits" && c.w.state.Load() == granted && !c.granted {
			fresh[c.key] = append(fresh[c.key], c)
		}
	}
	for key, callers := range fresh {
		for _, c := range inTurn(&w.turns, append(w.waitFor(key), callers...))[:len(callers)] {
			if !slices.Contains(callers, c) {
				w.fault("caller %d has not been granted the key, and others were before their turns", slices.Index(w.callers, c))
				return
			}
			if len(callers) > 1 && !c.shared {
				w.fault("caller %d was granted a key alone, with %d others", slices.Index(w.callers, c), len(callers)-1)
			}
			c.granted = true
			w.turns.had(&c.place)
			if c.shared {
				w.admitted(c, c.w.token)
			}
		}
	}
}

// takes returns what the execution of c is to take along: of all items, the first one,
// or the second.
func (w *world) takes(c *caller, which string) []*caller {
	if w.closed[c.token] || c.shared {
		return nil
	}
	want := inTurn(&w.turns, w.waitFor(c.key))
	if i := slices.IndexFunc(want, func(c *caller) bool { return c.item == nil }); i >= 0 {
		want = want[:i]
	}
	switch which {
	case "take-one":
		want = want[:min(len(want), 1)]
	case "take-second":
		want = want[min(len(want), 1):min(len(want), 2)]
	}
	for _, taken := range want {
		w.turns.had(&taken.place)
	}
	return want
}

// placeFor returns who gives way to c if it has to wait, nil for nobody, and with which
// error it is refused.
func (w *world) placeFor(c *caller) (gives *caller, err error) {
	queue := w.table.Queue
	e, here := w.table.keys.find(c.key), w.waitFor(c.key)
	switch {
	case w.table.closed, e == nil && !w.table.exhaustedLocked(), len(here) == 0 && w.compatible(c):
		return nil, nil
	case overfull(queue, c, w.waitFor("")):
		return nil, ErrQueueFull
	case len(here) < cmp.Or(queue.PerKey, DefaultPerKey):
		return nil, nil
	}
	gives, ok := givesWay(&w.turns, c, here)
	if !ok {
		return nil, ErrQueueFull
	}
	return gives, nil
}

// count holds what is counted, and the lines of all keys, to who waits.
func (w *world) count() {
	total := 0
	clients := map[uint64]int64{}
	for _, c := range w.callers {
		if c.queued() {
			total++
			clients[c.client]++
		}
	}
	if n := w.table.Queue.Waiting(); n != total {
		w.fault("%d waiters counted, %d wait", n, total)
	}
	for client := uint64(1); client < 10; client++ {
		if n := w.table.Queue.share(client).Load(); n != clients[client] {
			w.fault("%d waiters of client %d counted, %d wait", n, client, clients[client])
		}
	}
	for e := range w.table.keys.all {
		if n := len(w.waitFor(e.key)); n != int(e.waiters) || n != len(slices.Collect(e.queue)) {
			w.fault("%q: %d waiters counted, %d in lines, %d wait", e.key, e.waiters, len(slices.Collect(e.queue)), n)
		}
		w.lines(e)
	}
}

// lines holds the lines of one key to each other.
func (w *world) lines(e *entry) {
	most, clients := 0, 0
	for first := e.first; first != nil; first = first.line.behind {
		n := 0
		for x := first; x != nil; x = x.next {
			if n++; n > 1 {
				most = max(most, n)
			}
			if x.next == nil && first.line.last != x {
				w.fault("%q: the line of client %d ends elsewhere", e.key, first.client)
			}
		}
		if n != first.line.len {
			w.fault("%q: the line of client %d has %d callers, counted %d", e.key, first.client, n, first.line.len)
		}
		if first.client != 0 {
			clients++
			if e.line(first.client) != first {
				w.fault("%q: the line of client %d is not found", e.key, first.client)
			}
		}
	}
	if e.lines != nil && (len(e.lines.first) != clients || e.lines.most < most) {
		w.fault("%q: %d lines of at most %d, want %d, of which one has %d", e.key, len(e.lines.first), e.lines.most, clients, most)
	}
}
