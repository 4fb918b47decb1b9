package keytable

import (
	"fmt"
	"slices"
	"strings"
)

// A caller calls Lock, or LockWait with an item, and then Unlock, one step at a time. Once, while
// it holds its key, it takes along what waits there.
type caller struct {
	place
	item      *Item
	shared    bool
	took      bool
	along     []*caller // what it took, and has not finished
	fickle    bool      // its context may end
	cancelled bool
	limited   bool   // it may have waited for too long
	leaves    bool   // it may become remote
	remote    bool   // it has
	installed bool   // it was so from the start
	granted   bool   // and that has been looked at
	phase     string // "", "waits", "holds" or "ended"
	w         *waiter
	token     int64
}

// world is a table, its callers, and what is under way.
type world struct {
	table   Table
	callers []*caller
	owner   []func(*world)
	wakeups []*waiter        // chains still to be woken
	closed  map[int64]bool   // tokens that Close has listed
	last    map[string]int64 // last token of each key
	turns   turns
	faults  []string
}

// newWorld has the callers that a text stands for, see TestExplore.
func newWorld(callers string, owner []func(*world)) *world {
	w := &world{owner: owner, closed: map[int64]bool{}, last: map[string]int64{}, turns: turns{since: map[turn]int{}}}
	next := &caller{}
	for _, letter := range callers {
		switch {
		case letter == '+':
			next.item = &Item{Value: next}
		case letter == '!':
			next.limited = true
		case letter == '=':
			next.shared = true
		case letter == '*':
			next.leaves = true
		case letter >= '0' && letter <= '9':
			w.callers[len(w.callers)-1].client = uint64(letter - '0')
		default:
			next.key = strings.ToLower(string(letter))
			next.fickle = next.key != string(letter)
			w.callers = append(w.callers, next)
			next = &caller{}
		}
	}
	return w
}

func (w *world) fault(format string, args ...any) {
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

// steps names what can happen next.
func (w *world) steps() (names []string) {
	for i, c := range w.callers {
		add := func(what string) { names = append(names, fmt.Sprint(what, " ", i)) }
		switch {
		case c.phase == "":
			add("enter")
		case c.phase == "holds":
			add("unlock")
			if c.leaves {
				add("remote")
			}
			if !c.took && slices.ContainsFunc(w.callers, func(c *caller) bool { return c.item != nil }) {
				add("take")
				add("take-one")
				add("take-second")
			}
		case c.phase == "waits" && len(c.w.woken) > 0:
			add("wake")
		}
		if c.phase == "waits" && c.cancelled {
			add("give-up")
		}
		if c.phase == "waits" && c.limited {
			add("time-out")
		}
		if len(c.along) > 0 {
			add("finish")
		}
		if c.fickle && !c.cancelled && c.phase != "ended" {
			add("cancel")
		}
	}
	for i := range w.wakeups {
		names = append(names, fmt.Sprint("send ", i))
	}
	if len(w.owner) > 0 {
		names = append(names, "owner 0")
	}
	return names
}

func (w *world) step(name string) {
	var what string
	var i int
	fmt.Sscan(name, &what, &i)
	blocked := map[string][]int64{} // the blocked keys, the tokens that hold each, and how many share it
	for e := range w.table.keys.all {
		if e.blocked {
			heir := hold{}
			if e.heir != nil {
				heir = *e.heir
			}
			blocked[e.key] = []int64{int64(e.sharers + heir.sharers), e.token, heir.token}
		}
	}
	defer func() {
		for e := range w.table.keys.all {
			if before, ok := blocked[e.key]; ok && e.blocked && e.token != 0 && (!slices.Contains(before[1:], e.token) || int64(e.sharers) > before[0]) {
				w.fault("%q granted while blocked", e.key)
			}
		}
		w.grants()
	}()
	switch what {
	case "enter":
		w.enter(w.callers[i])
	case "wake":
		<-w.callers[i].w.woken
		w.settle(w.callers[i])
	case "give-up":
		w.settle(w.callers[i])
	case "time-out":
		w.timeOut(w.callers[i])
	case "unlock":
		w.unlock(w.callers[i])
	case "remote":
		c := w.callers[i]
		c.leaves = false
		listed := w.table.SetRemote(c.key, c.token)
		if listed != w.closed[c.token] {
			w.fault("%q: SetRemote says listed %v, Close said %v", c.key, listed, w.closed[c.token])
		}
		c.remote = c.remote || !listed
	case "take", "take-one", "take-second":
		w.take(w.callers[i], what)
	case "finish":
		c := w.callers[i]
		first := c.along[0]
		c.along = c.along[1:]
		first.item.Finish()
	case "cancel":
		w.callers[i].cancelled = true
	case "send":
		first := w.wakeups[i]
		w.wakeups[i], first.next = first.next, nil
		if w.wakeups[i] == nil {
			w.wakeups = slices.Delete(w.wakeups, i, i+1)
		}
		wake(first)
	case "owner":
		do := w.owner[0]
		w.owner = w.owner[1:]
		do(w)
	}
}

// change does what changes the table, and has those woken later that have left their queues.
func (w *world) change(do func()) {
	w.table.mu.Lock()
	do()
	chain := w.table.woken
	w.table.woken = nil
	w.table.mu.Unlock()
	if chain != nil {
		w.wakeups = append(w.wakeups, chain)
	}
}

func (w *world) enter(c *caller) {
	if c.cancelled {
		c.phase = "ended"
		return
	}
	if c.item != nil {
		c.item.w.state.Store(waiting)
	}
	gives, want := w.placeFor(c)
	token, waiter, err := w.table.enter(c.key, Wait{Item: c.item, Client: c.client, Shared: c.shared})
	if gives != nil && gives.w.state.Load() != displaced {
		w.fault("caller %d does not give way", slices.Index(w.callers, gives))
	}
	switch {
	case err != nil:
		c.phase = "ended"
		if err != want && !w.table.closed {
			w.fault("enter: %v, want %v", err, want)
		}
	case waiter != nil:
		if want != nil {
			w.fault("caller %d waits, want %v", slices.Index(w.callers, c), want)
		}
		come(&w.turns, c, w.waitFor(c.key))
		c.phase, c.w = "waits", waiter
	default:
		w.admitted(c, token)
		w.hold(c, token)
	}
}

// timeOut ends the wait of c, if it still waits for its key.
func (w *world) timeOut(c *caller) {
	c.limited = false
	left := false
	if w.change(func() { left = w.table.giveUpLocked(c.w) }); left {
		c.w, c.phase = nil, "ended"
	}
}

func (w *world) settle(c *caller) {
	if c.cancelled {
		w.change(func() { w.table.giveUpLocked(c.w) })
		c.w, c.phase = nil, "ended"
		return
	}
	token, err := w.table.endWait(c.w, nil)
	if along := c.item != nil && c.item.Taken(); err != nil || along {
		if token != 0 || along && (err != nil || c.item.w.state.Load() != finished) {
			w.fault("LockWait returned %d, %v, taken %v, finished %v", token, err, along, c.item.w.state.Load() == finished)
		}
		c.w, c.phase = nil, "ended"
		return
	}
	c.w = nil
	if !c.shared {
		w.admitted(c, token)
	}
	w.hold(c, token)
}

// queued reports whether c waits for its key.
func (c *caller) queued() bool { return c.phase == "waits" && c.w.state.Load() == waiting }

// take takes along all items that it is offered, the first one, or the second.
func (w *world) take(c *caller, which string) {
	c.took = true
	want := w.takes(c, which)
	offered := 0
	w.table.Take(c.key, c.token, func(i *Item) (take, more bool) {
		offered++
		c.along = append(c.along, i.Value.(*caller))
		if which == "take-second" && offered == 1 {
			c.along = nil
			return false, true
		}
		return true, which == "take"
	})
	if !slices.Equal(c.along, want) {
		w.fault("took %v along, want %v", c.along, want)
	}
}

// admitted looks at c, which holds its key from now on: one that waited for it alone, since it has noticed.
func (w *world) admitted(c *caller, token int64) {
	joins := false
	for _, other := range w.holders(c.key) {
		if other == c {
			continue
		}
		if joins = c.shared && other.shared && token == other.held(); !joins {
			w.fault("%q granted while another caller holds it", c.key)
		}
	}
	if token < w.last[c.key] || token == w.last[c.key] && !joins {
		w.fault("%q: token %d after %d", c.key, token, w.last[c.key])
	}
	w.last[c.key] = token
}

func (w *world) hold(c *caller, token int64) {
	c.phase, c.token, c.remote = "holds", token, c.shared
}

// held returns the token of a caller that holds its key, whether it has noticed or, if it shares the key, not.
func (c *caller) held() int64 {
	switch {
	case c.phase == "holds":
		return c.token
	case c.phase == "waits" && c.shared && c.w.state.Load() == granted:
		return c.w.token
	}
	return 0
}

func (w *world) holders(key string) (callers []*caller) {
	for _, c := range w.callers {
		if c.key == key && c.held() != 0 {
			callers = append(callers, c)
		}
	}
	return callers
}

// compatible reports whether c may hold its key beside those that do.
func (w *world) compatible(c *caller) bool {
	holders := w.holders(c.key)
	if e := w.table.keys.find(c.key); e != nil && (e.blocked || e.holder != nil) {
		return false
	} else if len(holders) == 0 {
		return !w.table.exhaustedLocked()
	}
	return c.shared && !slices.ContainsFunc(holders, func(other *caller) bool { return !other.shared || w.closed[other.held()] })
}

// install has somebody hold a key whom nobody here has granted it: with an execution from before that
// Close has listed, if need be, or with those that share it.
func (w *world) install(key string, token int64, shared bool) {
	kept, joins := false, false
	for _, c := range w.holders(key) {
		if c.shared && shared && c.held() == token {
			joins = true
		} else if c.remote && (!c.shared || c.installed) || c.held() >= token {
			kept = true
		}
	}
	if refused := !w.table.Install(key, token, shared); refused != (kept && !joins) {
		w.fault("%q: Install refused %v, while another one or a later execution holds the key: %v", key, refused, kept)
	} else if !refused {
		w.callers = append(w.callers, &caller{place: place{key: key}, shared: shared, took: true, remote: true, installed: true, phase: "holds", token: token})
		w.last[key] = max(w.last[key], token)
		if shared && !joins {
			w.closed[token] = true
		}
	}
}

// share lets others join those that share a key with that token.
func (w *world) share(key string, token int64) {
	w.table.Share(key, token)
	if slices.ContainsFunc(w.holders(key), func(c *caller) bool { return c.shared && c.held() == token }) {
		w.closed[token] = false
	}
}

func (w *world) unlock(c *caller) {
	var listed, ok bool
	w.change(func() { listed, ok = w.table.unlockLocked(c.key, c.token) })
	if !ok {
		w.fault("%q is not held with token %d", c.key, c.token)
	}
	if listed != w.closed[c.token] {
		w.fault("%q: Unlock says listed %v, Close said %v", c.key, listed, w.closed[c.token])
	}
	c.phase = "ended"
}

func (w *world) close() {
	var held []Held
	w.change(func() { held = w.table.closeLocked() })
	var want []Held
	for _, c := range w.callers {
		if h := (Held{c.key, c.held(), c.remote || c.shared, c.shared}); h.Token != 0 && !slices.Contains(want, h) {
			want = append(want, h)
		}
	}
	slices.SortFunc(want, func(a, b Held) int { return int(a.Token - b.Token) })
	if !slices.Equal(held, want) {
		w.fault("Close listed %v, what runs is %v", held, want)
	}
	for _, h := range held {
		w.closed[h.Token] = true
	}
}

// check holds a state to what must be true of it, given what can happen next.
// Nobody counts on a context to end: without that, all must go on to its end.
func (w *world) check(steps []string) {
	w.count()
	for _, c := range w.waitFor("") {
		if inTurn(&w.turns, w.waitFor(c.key))[0] == c && w.compatible(c) {
			w.fault("caller %d is the first that waits for %q, and could hold it", slices.Index(w.callers, c), c.key)
		}
	}
	if slices.ContainsFunc(steps, func(name string) bool { return !strings.HasPrefix(name, "cancel") }) {
		return
	}
	for i, c := range w.callers {
		if c.phase != "ended" {
			w.fault("caller %d is stuck: %q", i, c.phase)
		}
	}
	if n := w.table.Len(); n != 0 {
		w.fault("%d keys left over", n)
	}
	if e := &w.table.keys.slot; e.lines != nil && len(e.lines.first) > 0 {
		w.fault("%d lines left over", len(e.lines.first))
	}
}

// fingerprint tells states apart. Waiters are named in the order of
// appearance.
func (w *world) fingerprint() string {
	var b strings.Builder
	names := map[*waiter]int{}
	name := func(x *waiter) {
		if x == nil {
			b.WriteString("- ")
			return
		}
		if _, ok := names[x]; !ok {
			names[x] = len(names)
		}
		fmt.Fprintf(&b, "w%d/%d/%d/%d ", names[x], x.token, x.state.Load(), len(x.woken))
	}
	chain := func(x *waiter) {
		for ; x != nil; x = x.next {
			name(x)
		}
	}
	for _, c := range w.callers {
		fmt.Fprintf(&b, "%s %v %v %v %v %q %d ", c.key, c.cancelled, c.limited, c.leaves, c.remote, c.phase, c.token)
		name(c.w)
	}
	for _, x := range w.wakeups {
		b.WriteString("send ")
		chain(x)
	}
	for _, c := range w.callers {
		fmt.Fprint(&b, c.took, len(c.along))
		for _, other := range c.along {
			fmt.Fprint(&b, " ", slices.Index(w.callers, other))
		}
	}
	t := &w.table
	fmt.Fprintf(&b, "closed %v %d %d %v %d ", t.closed, t.minted, t.limit, w.closed, len(w.owner))
	entries := slices.SortedFunc(t.keys.all, func(x, y *entry) int { return strings.Compare(x.key, y.key) })
	for _, e := range entries {
		fmt.Fprintf(&b, "%s %d %d %v %v %v ", e.key, e.token, e.sharers, e.blocked, e.listed, e.remote)
		if e.heir != nil {
			fmt.Fprint(&b, "heir ", *e.heir)
		}
		name(e.holder)
		for x := range e.queue {
			name(x)
			fmt.Fprint(&b, x.client, x.line.len, " ")
		}
	}
	b.WriteString("spare ")
	for i := range t.spares.len {
		name(t.spares.list[i])
	}
	return b.String()
}

// queue yields everyone that waits, line by line.
func (e *entry) queue(yield func(*waiter) bool) {
	for first := e.first; first != nil; first = first.line.behind {
		for w := first; w != nil; w = w.next {
			if !yield(w) {
				return
			}
		}
	}
}
