package remote

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keyway-go/keyway/internal/handoff"
	"github.com/keyway-go/keyway/internal/records"
)

// Times of a worker's session, counted from before the renewal that was confirmed last.
const (
	ttl       = 20 * time.Second
	cancel    = ttl * 8 / 10
	surrender = ttl * 95 / 100
)

// world is the workers that may own one partition, the store, and callers with their calls. It assumes what internal/handoff
// promises: at most one table is open whose worker's session lives, a move hands over the text, and nobody claims before
// the session of the last owner is over.
type world struct {
	sc      *scope
	now     time.Duration
	left    [events]int8
	part    part
	workers []*worker
	callers []*caller
	calls   []*call
	seen    told    // with which a caller of a client began to work on k last
	told    [2]told // by key, k and l: the latest grant that a caller was told of
	limits  []limit
	over    []over
	cover   map[transition]int // transitions that were taken
	bad     error
	log     func(format string, args ...any)
}

// over is an id by which nothing is locked up to a time, or not by a request of that number.
type over struct {
	id     ID
	number uint64 // 0 for all
	until  time.Duration
}

// final notes that a worker has ended an id.
func (w *world) final(id ID, number uint64) {
	w.over = slices.DeleteFunc(w.over, func(o over) bool { return o.until <= w.now })
	if !slices.ContainsFunc(w.over, func(o over) bool { return o.id == id && o.number == number }) {
		w.over = append(w.over, over{id, number, w.now + ttl})
	}
}

type lockID struct {
	id    ID
	token int64
}

// limit is until when a lock may hold its key, since it was renewed.
type limit struct {
	lockID
	until time.Duration
}

// limitOf returns that of a lock.
func (w *world) limitOf(id ID, token int64) *limit {
	of := lockID{id, token}
	i := slices.IndexFunc(w.limits, func(l limit) bool { return l.lockID == of })
	if i < 0 {
		i = len(w.limits)
		w.limits = append(w.limits, limit{lockID: of})
	}
	return &w.limits[i]
}

type told struct {
	token  int64
	caller int
	shared bool
}

// part is what the store knows of the partition.
type part struct {
	epoch    int64
	owner    int // a worker, in one of its lives
	life     int
	to       int   // where it moves while its table is closed; -1 for no move
	moved    int64 // the epoch at which it was moved last
	opened   bool  // by the owner
	locks    string
	until    time.Duration // when locks are cleared; 0 while the owner has not opened the table
	written  []records.WrittenLock
	listedAt time.Duration // when locks were listed
	closedAt time.Duration // when the owner closed its table
}

// worker is one process, and the shell around its machine.
type worker struct {
	w         *world
	slot      int
	up        bool
	life      int
	machine   Machine
	keys      keys
	cancels   uint64
	confirmed time.Duration // when it sent the renewal that was confirmed last
	over      time.Duration // when the sessions of its former lives are over
	cut       bool          // from the store
	behind    bool          // its shell stands still, while calls are answered
	lost      bool          // the session, and no other is registered
	cancelled bool          // under this lease
	served    int64         // the epoch of the partition when this life served it
	listed    string        // when it closed it
	owes      bool          // LocksMoved has not arrived
	writes    []write       // that were asked for
}

type write struct {
	lock  records.WrittenLock
	epoch int64
	done  bool
}

func newWorld(sc *scope) *world {
	w := &world{sc: sc, left: sc.limits}
	for i := range sc.workers {
		x := &worker{w: w, slot: i, up: true, life: 1}
		x.machine = Machine{Host: x, TTL: ttl}
		x.keys.closed = true
		w.workers = append(w.workers, x)
	}
	for i, s := range sc.callers {
		c := &caller{slot: i, id: ID{byte(i + 1)}, key: "k"}
		for _, letter := range s {
			switch letter {
			case 'r':
				c.shared = true
			case 'l':
				c.key = "l"
			case 'b':
				c.both, c.key = true, "l"
			case 'L':
				c.lease = 2 * ttl
			case 'S':
				c.lease = 2 * ttl / 5
			case 'h':
				c.client = &client{}
			case 'q':
				c.client.quick = true
			case 't':
				c.client.turns = 1
			}
		}
		w.callers = append(w.callers, c)
	}
	w.part = part{epoch: 1, life: 1, to: -1}
	w.open(w.workers[0], false)
	return w
}

func (w *world) say(format string, args ...any) {
	if w.log != nil {
		w.log(format, args...)
	}
}

func (w *world) fail(format string, args ...any) {
	if w.bad == nil {
		w.bad = fmt.Errorf(format, args...)
	}
}

func (x *worker) name() string { return string(rune('a' + x.slot)) }

func (x *worker) at() Instant { return Instant{x.w.now, x.cancels} }

// vouch is how much longer the session vouches for, as the process's clock tells.
func (x *worker) vouch() (toCancel, toSurrender time.Duration) {
	return max(x.confirmed+cancel-x.w.now, 0), max(x.confirmed+surrender-x.w.now, 0)
}

func (x *worker) admits() bool { return x.w.now < x.confirmed+ttl*7/10 }

// owns reports whether the store names this life of x.
func (x *worker) owns() bool { return x.up && x.w.part.owner == x.slot && x.w.part.life == x.life }

// sessionOver reports whether the store's owner is dead for certain.
func (w *world) sessionOver() bool {
	x := w.workers[w.part.owner]
	if x.up && w.part.life == x.life {
		return w.now >= x.confirmed+ttl
	}
	return w.now >= x.over
}

func (x *worker) alive() bool {
	return x.up && !x.behind && !x.cut && !x.lost && x.w.now < x.confirmed+ttl
}

// Valid implements Host.
func (x *worker) Valid(key string) bool { return key == "k" || key == "l" }

// Holder implements Host.
func (x *worker) Holder(key string) int64 { return x.keys.holder(key) }

// Install implements Host.
func (x *worker) Install(key string, token int64, shared bool) bool {
	return x.keys.install(key, token, shared)
}

// Share implements Host.
func (x *worker) Share(key string, token int64) { x.keys.share(key, token) }

// SetRemote implements Host.
func (x *worker) SetRemote(key string, token int64) bool { return x.keys.setRemote(key) }

// Unlock implements Host.
func (x *worker) Unlock(key string, token int64) {
	if !x.keys.unlock(key, token) {
		x.w.fail("%s frees %s, which it does not hold with token %s", x.name(), key, tokenText(token))
	}
}

// Write implements Host.
func (x *worker) Write(list ...records.WrittenLock) {
	for _, l := range list {
		x.writes = append(x.writes, write{l, x.w.part.epoch, false})
	}
}

// Settle implements Host.
func (x *worker) Settle(l *Lock, made bool) {
	for _, c := range x.w.calls {
		if c.at == x.slot && c.stage == storing && c.back == l {
			c.stage = granted
			if c.kind == release {
				c.answered(made)
			}
		}
	}
}

// EndWait implements Host.
func (x *worker) EndWait(l *Lock) {
	for _, c := range x.w.calls {
		if c.at == x.slot && c.lock == l && (c.stage == queued || c.stage == won) {
			c.pushed = true
			return
		}
	}
	x.w.fail("%s ends a wait that nobody waits", x.name())
}

// Tell implements Host.
func (x *worker) Tell(l *Lock, e Event) {
	if x.w.log == nil {
		return
	}
	x.w.say("%s: lock %s of %s (token %s) is %v", x.name(), idText(l.ID), l.Key, tokenText(l.Token), e)
}

// Ended implements Host.
func (x *worker) Ended() { x.w.say("%s: no lock is left that was frozen or lost", x.name()) }

func idText(id ID) string          { return fmt.Sprintf("%d.%d", id[0], id[1]) }
func tokenText(token int64) string { return fmt.Sprintf("%d.%d", token>>20, token&(1<<20-1)) }

// close closes the table of x.
func (w *world) close(x *worker) {
	x.keys.close()
	x.listed, _ = x.machine.Close(x.at())
	w.part.closedAt = w.now
	list, done, err := decode(x.listed, ttl, x.Valid)
	if err != nil {
		w.fail("%s closes with a text that cannot be read: %v", x.name(), err)
	}
	w.say("%s: the table is closed with %d locks and %d releases", x.name(), len(list), len(done.order))
	x.writes = slices.DeleteFunc(x.writes, func(w write) bool { return w.done })
}

// open opens the table of x, which the store names.
func (w *world) open(x *worker, resumed bool) {
	p := &w.part
	o := handoff.OpenTable{Epoch: p.epoch, Written: slices.Clone(p.written)}
	if o.Resumed = resumed; resumed {
		o.Locks, o.Renewable = x.listed, true
	} else if p.locks != "" {
		o.Locks, o.Renewable = p.locks, p.moved == p.epoch
		p.until = w.now + ttl
	}
	from := p.listedAt
	if resumed {
		from = p.closedAt
	}
	for i := range w.limits { // what is left counts from now
		w.limits[i].until += w.now - from
	}
	for _, k := range o.Written {
		list, _, _ := decode(k.Text, 0, x.Valid)
		if l := w.limitOf(list[0].ID, list[0].Token); !o.Renewable {
			l.until = max(l.until, w.now+list[0].Lease)
		}
	}
	if err := x.machine.Open(x.at(), o); err != nil {
		w.fail("%s cannot read what it opens: %v", x.name(), err)
	}
	x.keys.open(p.epoch)
	x.served, p.opened, x.owes, x.listed = p.epoch, true, false, ""
	w.say("%s: the table is open at epoch %d: %v", x.name(), p.epoch, &x.machine)
	if o.Renewable {
		w.checkKept(x)
		w.checkClientsKept(x)
	}
}

// checkKept fails if a planned move has lost a lock that its holder works under.
func (w *world) checkKept(x *worker) {
	for _, c := range w.callers {
		if c.phase != holds || w.now >= c.hold.cancel || w.isEnding(c) {
			continue
		}
		if l := x.machine.byID[c.hold.id]; l == nil || l.Token != c.hold.token || !x.machine.vouches(x.at(), l) {
			w.fail("M: the lock of caller %d (token %s) is lost in a planned move to %s", c.slot, tokenText(c.hold.token), x.name())
		}
	}
}

// pass lets time go by, in which each shell that does not stand still does what its deadlines say.
func (w *world) pass() {
	w.now += w.sc.step
	w.say("-- %v", w.now)
	for _, c := range w.callers {
		if c.phase == holds && w.now >= c.hold.until {
			c.phase = idle
		}
	}
	for _, x := range w.workers {
		if x.up && !x.behind {
			w.tick(x)
		}
	}
	for _, c := range w.callers {
		if c.client != nil {
			w.tickClient(c)
		}
	}
	if p := &w.part; p.until != 0 && w.now >= p.until && w.workers[p.owner].owns() {
		p.locks, p.until = "", 0
	}
}

// tick lets the shell and the timer of x look at the clock.
func (w *world) tick(x *worker) {
	switch since := w.now - x.confirmed; {
	case !x.cut && (x.lost || since < ttl):
		x.confirmed, x.cancelled, x.lost = w.now, false, false
	case since >= surrender && !x.lost:
		w.loseSession(x)
	case since >= cancel && !x.cancelled && !x.lost:
		x.cancels++
		x.cancelled = true
		w.say("%s: all that it admitted is cancelled", x.name())
	}
	x.machine.Tick(x.at())
}

// loseSession begins a new life of x.
func (w *world) loseSession(x *worker) {
	w.say("%s: its session is lost", x.name())
	if !x.cancelled {
		x.cancels++
	}
	if x.machine.open {
		w.close(x)
	}
	x.over = x.confirmed + ttl
	x.life, x.served, x.listed, x.writes = x.life+1, 0, "", nil
	x.cancelled, x.lost, x.confirmed = false, true, w.now-ttl
}

// crash ends the process of x, and the calls that are there.
func (w *world) crash(x *worker) {
	w.say("%s: the process ends", x.name())
	*x = worker{w: w, slot: x.slot, life: x.life, over: x.confirmed + ttl}
	var broken []*call
	w.calls = slices.DeleteFunc(w.calls, func(c *call) bool {
		ends := c.at == x.slot && c.stage != answered
		if ends && c.caller.client != nil && !c.lost {
			broken = append(broken, c)
		}
		return ends || c.lost && c.stage == sent && c.to == x.slot
	})
	for _, c := range broken {
		w.fails(c, true, false)
	}
}

// start starts the process of x anew.
func (w *world) start(x *worker) {
	*x = worker{w: w, slot: x.slot, life: x.life + 1, over: x.over, up: true, confirmed: w.now}
	x.machine = Machine{Host: x, TTL: ttl}
	x.keys.closed = true
}

// give makes another worker the owner, as moved tells by a move.
func (w *world) give(to *worker, moved bool) {
	p := &w.part
	p.epoch++
	if moved {
		p.moved, p.until = p.epoch, 0
	}
	p.owner, p.life, p.to, p.opened = to.slot, to.life, -1, false
}

// store applies the first write of x that is not done, or tells x of it.
func (w *world) store(x *worker) {
	i := 0
	f := &x.writes[i]
	p := &w.part
	if !f.done {
		if f.epoch != p.epoch || !x.owns() {
			x.writes = slices.Delete(x.writes, i, i+1) // the store refuses it
			return
		}
		f.done = true
		p.written = slices.DeleteFunc(slices.Clone(p.written), func(k records.WrittenLock) bool { return k.ID == f.lock.ID })
		if f.lock.Text != "" {
			p.written = append(p.written, f.lock)
		}
		if w.sc.lateStore {
			return
		}
	}
	lock := f.lock
	x.writes = slices.Delete(x.writes, i, i+1)
	if x.machine.open {
		w.say("%s: the store has answered for a lock, %v", x.name(), map[bool]string{true: "removed", false: "kept"}[lock.Text == ""])
		x.machine.Stored([]records.WrittenLock{lock})
	}
}

// check holds the world to what must be true in every state.
func (w *world) check() {
	for i, c := range w.callers {
		for _, other := range w.callers[:i] {
			if c.believes() && other.believes() && c.hold.key == other.hold.key && !(c.hold.shared && other.hold.shared) {
				w.fail("S1: callers %d and %d both hold %s, with tokens %s and %s", other.slot, c.slot, c.hold.key, tokenText(other.hold.token), tokenText(c.hold.token))
			}
		}
	}
	w.checkClients()
	for _, x := range w.workers {
		if x.up {
			w.checkWorker(x)
		}
	}
}

func (w *world) checkWorker(x *worker) {
	m := &x.machine
	for _, l := range m.order {
		if until := w.limitOf(l.ID, l.Token).until; l.expires > max(until, w.now) && l.state != removing {
			w.fail("lease: %s holds %s with token %s until %v, and may until %v", x.name(), l.Key, tokenText(l.Token), l.expires, until)
		}
		if l.expires < w.now && l.state != removing && !x.behind {
			w.fail("lease: %s holds %s with token %s though its lease has ended at %v", x.name(), l.Key, tokenText(l.Token), l.expires)
		}
		if (l.state == keeping || l.state == removing) && !slices.ContainsFunc(x.writes, func(f write) bool { return f.lock == l.kept(l.wanted) }) {
			w.fail("stuck: %s has a lock of %s that is %v, and the store is not asked", x.name(), l.Key, l.state)
		}
		if e := x.keys.find(l.Key); e.token != l.Token && e.heir.token != l.Token {
			w.fail("%s has a lock of %s with token %s, and the key is another's", x.name(), l.Key, tokenText(l.Token))
		}
	}
	for _, e := range x.keys.list {
		for _, token := range []int64{e.token, e.heir.token} {
			if token != 0 && !slices.ContainsFunc(m.order, func(l *Lock) bool { return l.Token == token && l.Key == e.name }) &&
				!slices.ContainsFunc(w.calls, func(c *call) bool { return c.stage == won && c.token == token && c.at == x.slot }) {
				w.fail("stuck: %s holds %s with token %s for nobody", x.name(), e.name, tokenText(token))
			}
		}
	}
	for _, k := range w.part.written {
		id, token := idOf(k)
		if l := m.byID[id]; m.open && x.owns() && (l == nil || l.Token != token) && !slices.ContainsFunc(x.writes, func(f write) bool { return f.lock.ID == k.ID }) {
			w.fail("stuck: the store keeps lock %s for ever", idText(id))
		}
	}
}

func idOf(k records.WrittenLock) (ID, int64) {
	list, _, _ := decode(k.Text, 0, func(string) bool { return true })
	return list[0].ID, list[0].Token
}

// String says what a machine has, for transcripts.
func (m *Machine) String() string {
	var list []string
	for _, l := range m.order {
		list = append(list, fmt.Sprintf("%s %s %v %v", l.Key, tokenText(l.Token), l.state, l.expires))
	}
	slices.Sort(list)
	if len(list) == 0 {
		return "no locks"
	}
	return strings.Join(list, ", ")
}
