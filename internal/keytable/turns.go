package keytable

// clientLine is the callers of one client that wait for a key, in the order of arrival. Its first caller
// carries it. A caller without a client is a line by itself.
type clientLine struct {
	ahead, behind *waiter // the first callers of the lines that have their turns before and after it
	last          *waiter
	len           int
}

// lines finds the lines of clients at one key.
type lines struct {
	first map[uint64]*waiter // by client
	most  int                // no line of several callers has more
	big   bool               // the map has outgrown what is worth keeping
}

// line returns the first caller of a client's line, nil for none.
func (e *entry) line(client uint64) *waiter {
	if client == 0 || e.lines == nil {
		return nil
	}
	return e.lines.first[client]
}

// carry has w carry the line of its client, whose length was another one before.
func (e *entry) carry(w *waiter) {
	if w.client == 0 {
		return
	}
	if e.lines == nil {
		e.lines = &lines{first: make(map[uint64]*waiter)}
	}
	e.lines.first[w.client] = w
	e.lines.big = e.lines.big || len(e.lines.first) > keepMap
}

// push puts w behind the callers of its client, or behind all clients if there are none.
func (e *entry) push(w *waiter) {
	w.entry, w.prev, w.next = e, nil, nil
	e.waiters++
	first := e.line(w.client)
	if first == nil {
		w.line = clientLine{last: w, len: 1}
		e.join(w, e.last)
		e.carry(w)
		return
	}
	last := first.line.last
	last.next, w.prev = w, last
	first.line.last = w
	first.line.len++
	e.lines.most = max(e.lines.most, first.line.len)
}

// pushFirst puts w before all others, its client's and the other clients'.
func (e *entry) pushFirst(w *waiter) {
	w.entry, w.prev, w.next = e, nil, nil
	e.waiters++
	w.line = clientLine{last: w, len: 1}
	if first := e.line(w.client); first != nil {
		e.part(first)
		w.line.last, w.line.len = first.line.last, first.line.len+1
		w.next, first.prev, first.line = first, w, clientLine{}
		e.lines.most = max(e.lines.most, w.line.len)
	}
	e.join(w, nil)
	e.carry(w)
}

// pop removes the first caller, whose client has had its turn.
func (e *entry) pop() *waiter {
	w := e.first
	next := w.next
	e.remove(w)
	if next != nil {
		e.part(next)
		e.join(next, e.last)
	}
	return w
}

// remove takes w out of the queue. If it was the first of its line, the next one has its place.
func (e *entry) remove(w *waiter) {
	e.waiters--
	switch first := e.line(w.client); {
	case w.prev != nil:
		w.prev.next = w.next
		if w.next != nil {
			w.next.prev = w.prev
		} else {
			first.line.last = w.prev
		}
		first.line.len--
	case w.next != nil:
		next := w.next
		next.prev, next.line = nil, w.line
		next.line.len--
		ahead := w.line.ahead
		e.part(w)
		e.join(next, ahead)
		e.carry(next)
	default:
		e.part(w)
		if first != nil {
			delete(e.lines.first, w.client)
		}
	}
	w.prev, w.next, w.line = nil, nil, clientLine{}
}

// join gives w's line its turn behind that of ahead, or before all.
func (e *entry) join(w, ahead *waiter) {
	behind := e.first
	if ahead != nil {
		behind, ahead.line.behind = ahead.line.behind, w
	} else {
		e.first = w
	}
	if behind != nil {
		behind.line.ahead = w
	} else {
		e.last = w
	}
	w.line.ahead, w.line.behind = ahead, behind
}

// part takes w's line out of the order of turns.
func (e *entry) part(w *waiter) {
	ahead, behind := w.line.ahead, w.line.behind
	if ahead != nil {
		ahead.line.behind = behind
	} else {
		e.first = behind
	}
	if behind != nil {
		behind.line.ahead = ahead
	} else {
		e.last = ahead
	}
}

// givesWay returns the last waiter of the client with the longest line, if that is longer than
// another client's line would be with one more caller; nil otherwise.
func (e *entry) givesWay(client uint64) *waiter {
	own := 0
	if first := e.line(client); first != nil {
		own = first.line.len
	}
	if e.lines == nil || e.lines.most <= own+1 {
		return nil
	}
	longest := e.last
	for first := e.last; first != nil; first = first.line.ahead {
		if first.line.len > longest.line.len {
			longest = first
		}
	}
	if e.lines.most = longest.line.len; e.lines.most <= own+1 {
		return nil
	}
	return longest.line.last
}
