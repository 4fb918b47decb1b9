package localmutex

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestExplore runs every interleaving of a few callers and of whoever closes
// and opens the table, at the grain of critical sections and wake-ups, on the
// code that Lock, Unlock and Close consist of.
func TestExplore(t *testing.T) {
	closing := func(w *world) { w.close() }
	opening := func(blocked ...string) func(*world) {
		return func(w *world) { w.table.Open(10, 0, blocked) }
	}
	unblocking := func(key string) func(*world) { return func(w *world) { w.table.Unblock(key) } }
	advancing := func(first, limit int64) func(*world) {
		return func(w *world) { w.table.Advance(first, limit) }
	}
	for _, test := range []struct {
		name    string
		callers string // a letter for each, its key; a capital may be cancelled; after a + it waits with an item
		limit   int64
		owner   []func(*world) // what happens to the table, in this order
	}{
		{name: "cancel", callers: "AAA"},
		{name: "cancel, two keys", callers: "AAbB"},
		{name: "close", callers: "aaA", owner: []func(*world){closing}},
		{name: "close twice", callers: "aaa", owner: []func(*world){closing, closing}},
		{name: "close and open", callers: "aAa", owner: []func(*world){closing, opening()}},
		{name: "close, open, close", callers: "aA", owner: []func(*world){closing, opening(), closing}},
		{name: "two keys", callers: "abA", owner: []func(*world){closing, opening()}},
		{name: "block", callers: "aA", owner: []func(*world){closing, opening("a"), unblocking("a")}},
		{name: "block, two keys", callers: "aBb", owner: []func(*world){closing, opening("b", "a"), unblocking("a"), unblocking("b")}},
		{name: "block while open", callers: "aaA", owner: []func(*world){opening("a"), unblocking("a")}},
		{name: "block and close", callers: "aA", owner: []func(*world){opening("a"), closing, opening()}},
		{name: "exhaust", callers: "aAb", limit: 2, owner: []func(*world){advancing(1, 3), advancing(10, 20)}},
		{name: "exhaust and close", callers: "aAb", limit: 2, owner: []func(*world){closing, opening()}},
		{name: "items", callers: "a+A+aA"},
		{name: "items around a Lock", callers: "+aa+A"},
		{name: "items, two keys", callers: "a+Ab"},
		{name: "items, close", callers: "+a+A+a", owner: []func(*world){closing}},
		{name: "items, close and open", callers: "a+a+A", owner: []func(*world){closing, opening()}},
		{name: "items, exhaust", callers: "a+A+a", limit: 2, owner: []func(*world){advancing(1, 4)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			make := func() *world {
				w := &world{owner: test.owner, closed: map[int64]bool{}, last: map[string]int64{}}
				w.table.limit = test.limit
				item := false
				for _, letter := range test.callers {
					if letter == '+' {
						item = true
						continue
					}
					key := strings.ToLower(string(letter))
					c := &caller{key: key, fickle: key != string(letter)}
					if item {
						c.item = &Item{Value: c}
					}
					w.callers = append(w.callers, c)
					item = false
				}
				return w
			}
			states := explore(t, make)
			t.Logf("%d states", states)
			if states < 10 {
				t.Errorf("explored %d states only", states)
			}
		})
	}
}

// explore visits every state that can be reached from the first one, and
// returns their number. A world cannot be copied, so it is made again and led
// to each state by the steps that were seen to lead there.
func explore(t *testing.T, make func() *world) int {
	seen := map[string]bool{}
	paths := [][]string{nil}
	for len(paths) > 0 {
		path := paths[len(paths)-1]
		paths = paths[:len(paths)-1]
		w := make()
		for _, name := range path {
			w.step(name)
		}
		state := w.fingerprint()
		if seen[state] {
			continue
		}
		seen[state] = true
		steps := w.steps()
		w.check(steps)
		if len(w.faults) > 0 {
			t.Fatalf("after %s:\n%s\nin %s", strings.Join(path, ", "), strings.Join(w.faults, "\n"), state)
		}
		for _, name := range steps {
			paths = append(paths, append(slices.Clone(path), name))
		}
	}
	return len(seen)
}

// A caller calls Lock or LockItem and then Unlock, one step at a time. Once, while
// it holds its key, it takes along what waits there.
type caller struct {
	key       string
	item      *Item
	took      bool
	along     []*caller // what it took, and has not finished
	fickle    bool      // its context may end
	cancelled bool
	phase     string // "", "waits", "holds" or "ended"
	arrival   int    // when it began to wait
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
	arrived int
	faults  []string
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
	blocked := map[string]int64{} // the blocked keys, and the token that holds each
	for e := range w.table.keys.all {
		if e.blocked {
			blocked[e.key] = e.token
		}
	}
	defer func() {
		for e := range w.table.keys.all {
			if before, ok := blocked[e.key]; ok && e.blocked && e.token != 0 && e.token != before {
				w.fault("%q granted while blocked", e.key)
			}
		}
	}()
	switch what {
	case "enter":
		w.enter(w.callers[i])
	case "wake":
		<-w.callers[i].w.woken
		w.settle(w.callers[i])
	case "give-up":
		w.settle(w.callers[i])
	case "unlock":
		w.unlock(w.callers[i])
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

func (w *world) later(chain *waiter) {
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
	token, waiter, err := w.table.enter(c.key, c.item, Wait{})
	switch {
	case err != nil:
		c.phase = "ended"
	case waiter != nil:
		w.arrived++
		c.phase, c.w, c.arrival = "waits", waiter, w.arrived
	default:
		w.hold(c, token)
	}
}

func (w *world) settle(c *caller) {
	if c.cancelled {
		next, _ := w.table.abandon(c.w)
		w.later(next)
		c.w, c.phase = nil, "ended"
		return
	}
	token, err := w.table.settle(c.w, nil)
	if along := c.item != nil && c.item.Taken(); err != nil || along {
		if token != 0 || along && (err != nil || c.item.w.state.Load() != finished) {
			w.fault("LockItem returned %d, %v, taken %v, finished %v", token, err, along, c.item.w.state.Load() == finished)
		}
		c.w, c.phase = nil, "ended"
		return
	}
	for i, other := range w.callers {
		if other != c && other.key == c.key && other.phase == "waits" && other.arrival < c.arrival && other.queued() {
			w.fault("caller %d was passed over", i)
		}
	}
	c.w = nil
	w.hold(c, token)
}

// queued reports whether c waits, or has been granted the key and has not noticed.
func (c *caller) queued() bool {
	return c.phase == "waits" && (c.w.state.Load() == waiting || c.w.state.Load() == granted)
}

// take takes along all items that it is offered, the first one, or the second.
func (w *world) take(c *caller, which string) {
	c.took = true
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
	var want []*caller
	for _, other := range w.callers {
		if other.key == c.key && other.queued() || slices.Contains(c.along, other) {
			want = append(want, other)
		}
	}
	slices.SortFunc(want, func(a, b *caller) int { return a.arrival - b.arrival })
	if i := slices.IndexFunc(want, func(c *caller) bool { return c.item == nil }); i >= 0 {
		want = want[:i]
	}
	switch {
	case w.closed[c.token]:
		want = nil
	case which == "take-one":
		want = want[:min(len(want), 1)]
	case which == "take-second":
		want = want[min(len(want), 1):min(len(want), 2)]
	}
	if !slices.Equal(c.along, want) {
		w.fault("took %v along, want %v", c.along, want)
	}
}

func (w *world) hold(c *caller, token int64) {
	for i, other := range w.callers {
		if other.key == c.key && other.phase == "holds" {
			w.fault("%q granted while caller %d holds it", c.key, i)
		}
	}
	if token <= w.last[c.key] {
		w.fault("%q: token %d after %d", c.key, token, w.last[c.key])
	}
	w.last[c.key] = token
	c.phase, c.token = "holds", token
}

func (w *world) unlock(c *caller) {
	listed, next, ok := w.table.leave(c.key, c.token)
	if !ok {
		w.fault("%q is not held with token %d", c.key, c.token)
	}
	if listed != w.closed[c.token] {
		w.fault("%q: Unlock says listed %v, Close said %v", c.key, listed, w.closed[c.token])
	}
	c.phase = "ended"
	w.later(next)
}

func (w *world) close() {
	held, bounced := w.table.shut()
	w.later(bounced)
	var want []Held
	for _, c := range w.callers {
		if c.phase == "holds" {
			want = append(want, Held{c.key, c.token})
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
	if q := w.table.Queue; q != nil && q.Waiting() != 0 {
		w.fault("%d waiters counted, none left", q.Waiting())
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
		fmt.Fprintf(&b, "%s %v %q %d ", c.key, c.cancelled, c.phase, c.token)
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
		fmt.Fprintf(&b, "%s %d %v %v ", e.key, e.token, e.blocked, e.listed)
		name(e.holder)
		chain(e.first)
	}
	b.WriteString("spare ")
	for _, x := range t.spares {
		name(x)
	}
	return b.String()
}
