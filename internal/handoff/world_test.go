package handoff

import (
	"errors"
	"fmt"
	"github.com/keyway-go/keyway/internal/records"
	"slices"
	"time"
)

// scope bounds what may happen in a world: how many workers, partitions and
// keys there are, which views of the ring follow each other, and how often
// each kind of misfortune may strike.
type scope struct {
	name   string
	procs  int
	views  [][][]int // by view and partition: workers in order of preference
	keys   []int     // the partition of each key
	starts int       // executions in all

	faults int             // misfortunes in all
	limit  [eventKinds]int // of each kind

	warm    []int // workers that start together, before the search; default all
	poll    bool  // the store gives no hints, and reads are not settled at once
	bare    bool  // hints do not tell what has changed
	suspect bool  // the others wrongly think that worker a is down
	lag     bool  // gossip may take any time
	cold    bool  // search from the first step on, without a warm-up
	trust   bool  // who starts later trusts the store's quarantine as well
	proof   bool  // a restart proves that the old process is dead
	split   bool  // a process may stop between winning a mutex and starting
	untimed bool  // nothing keeps to any time: leases are ignored, only S2 is checked
	lives   bool  // a process that loses its session goes on in a new life, and requests may stop anywhere
	atOnce  bool  // who leaves does not wait for others to take over
	mute    bool  // renewals show nothing of the store, so that others are seen sooner
	long    bool  // locks have leases of two TTLs, for which they are written to the store
	batch   int   // partitions moved at once; 0 for all
	off     guard // rules that do not hold in this scope
	second  time.Duration
	rates   [3]rate // of the workers' clocks
	timing  func(*Machine)
	begin   func(*world)      // what has happened before the search
	target  func(Effect) bool // which calls a faulty network picks on; nil for all
	lossy   bool              // that a planned move loses a lock does not count
	until   time.Duration     // how long after its begin time passes, beyond which nothing is searched; 0 for no end
}

// eventKind is something that a scope limits the number of.
type eventKind uint8

const (
	evTimeout   eventKind = iota // a call's reply is lost; its request stays under way
	evDuplicate                  // a call is carried out, and a copy of its request stays under way
	evSlow                       // a call takes its time, in each direction
	evCrash                      // a process dies
	evPause                      // a machine is suspended; its monotonic clock stops
	evRestart                    // the store restarts with all it had
	evRollback                   // the store fails over and loses its latest writes
	evFlush                      // the store loses everything
	evStoreStep                  // the store's clock steps ahead by a TTL
	evExpire                     // a session expires early, since the store's clock stepped
	evWallStep                   // a worker's wall clock steps back
	evBlind                      // a worker's reads fail from here on, until they work again
	evLate                       // a hint comes late, or once more
	eventFaults                  // the kinds before this one are faults

	evView    // the ring changes to the scope's next view
	evLeave   // a worker is told to leave
	evSpawn   // a worker starts again
	evAdvance // a worker's tokens run low
	evHold    // a key is locked for a holder elsewhere
	evRenew   // a holder asks for its lock, for the first time or again
	evFree    // a holder releases its lock
	eventKinds
)

// world is a cluster of real machines, and models of all else.
type world struct {
	sc     *scope
	now    time.Duration // true time
	skew   time.Duration // the store's clock less true time
	store  *modelStore
	past   []*modelStore  // the store before its latest writes
	told   []records.Hint // the latest hints that tell what has changed, which may come late
	procs  []*proc
	msgs   []message
	ring   int  // index of the scope's views
	calm   bool // nobody is suspected wrongly any more
	left   [eventKinds]int
	faults int
	starts int
	last   []int64 // by key: token of its latest start
	held   []belief
	served []int64 // by partition: highest epoch that anybody served
	log    func(format string, args ...any)
	bad    error
	stop   time.Duration // true time at which the search ends, if the scope has an end
	off    guard         // rules that no machine keeps
	spares *spares       // of its search
}

// proc is a worker process: a machine in a shell.
type proc struct {
	slot      int
	life      int
	name      string // of its present life
	m         *Machine
	before    []*Machine // of lost lives that have not been released
	shared    bool       // m belongs to other worlds as well
	up        bool
	paused    time.Duration // true time of the suspension, if up to now; else negative
	resumed   bool          // has been suspended
	noticed   bool          // others know that it is down
	blind     bool          // its reads fail
	leaving   bool
	mono      time.Duration // monotonic clock less true time at its rate
	wall      time.Duration // wall clock less true time at its rate
	seen      gossip
	tables    []table
	lease     Lease
	cancels   []int // by partition: cancellations so far
	highest   int64 // epoch that the lives before knew of
	execs     []exec
	locks     []lock
	promised  bool          // this life has made promises to holders
	surrender time.Duration // true time at which its handlers have ended, if cancelled
	lost      bool
	done      bool
}

type table struct {
	open    bool
	closing bool // listed, about to be closed; only where that is not one step
	epoch   int64
	seq     int64
	blocked []string
}

// exec is an execution of a key at a worker.
type exec struct {
	key       int
	token     int64
	running   bool // not just about to, with the mutex won
	listed    bool // by a Closed
	confirmed bool // the first of two comparisons went well, where they are two steps
	cancels   int  // of its partition, when it was asked for
	cancelled bool
	endBy     time.Duration // true time, if cancelled
	void      bool          // its worker was suspended for so long that it should have ended
}

// message is a store call under way.
type message struct {
	from  int
	by    string // incarnation
	call  Effect
	slow  bool
	stray bool  // nobody waits for its reply
	reply Reply // once carried out
	done  bool  // carried out
}

// gossip is what a worker knows of the ring.
type gossip struct {
	ring  int
	lives [3]int8 // of the active workers; 0 for the others
	views [3]uint64
}

func (g gossip) digest() uint64 {
	d := uint64(g.ring) + 1
	for _, l := range g.lives {
		d = d<<6 | uint64(l)
	}
	return d
}

// Rules of the request path and of the shell, which the world keeps in place of them.
const (
	guardFreeze      guard = 1 << (63 - iota) // of the request path: a lock is not renewed after its table has listed it
	guardInstall                              // of the request path: locks that come with a partition hold their keys
	guardPromise                              // of the request path: a lock is promised for no longer than the owner's own lease
	guardPromised                             // of the shell: no restart releases an incarnation that has made promises
	guardWriteFirst                           // of the request path: a long lock is promised when the store keeps it
	guardRemoveFirst                          // of the request path: its key is freed when the store has removed it
	guardRecheck                              // of the request path: the lease is compared again after winning the mutex
	guardCloseList                            // of the request path: a table is closed and listed in one critical section
	guardConfirm                              // of the request path: the lease is compared before what cancels
	guardEveryLife                            // of the shell: ends of executions reach every life of the process
)

func newWorld(sc *scope, ttl time.Duration, off guard, storeOff storeGuard) *world {
	w := &world{sc: sc, store: newModelStore(len(sc.views[0]), ttl), left: sc.limit, faults: sc.faults, starts: sc.starts, spares: new(spares)}
	w.store.off = storeOff
	w.off = off
	w.store.second, w.store.mute = sc.second, sc.mute
	w.last = make([]int64, len(sc.keys))
	w.held = make([]belief, len(sc.keys))
	w.served = make([]int64, len(sc.views[0]))
	for i := range sc.procs {
		w.procs = append(w.procs, &proc{slot: i, paused: -1, noticed: true})
		if sc.warm == nil || slices.Contains(sc.warm, i) {
			w.spawn(i)
		}
	}
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

// rate is how fast a clock runs: it shows ticks while true passes. The zero
// rate is that of true time.
type rate struct{ ticks, true time.Duration }

// shown is what a clock of that rate shows at a true time.
func (r rate) shown(t time.Duration) time.Duration {
	if r == (rate{}) {
		return t
	}
	return t * r.ticks / r.true
}

// when is the true time from which on it shows t.
func (r rate) when(t time.Duration) time.Duration {
	if r == (rate{}) {
		return t
	}
	return (t*r.true + r.ticks - 1) / r.ticks
}

// phase is what there is in a true time of the next tick.
func (r rate) phase(t time.Duration) int {
	if r == (rate{}) {
		return 0
	}
	return int(t * r.ticks % r.true)
}

func (w *world) rate(p *proc) rate { return w.sc.rates[p.slot] }

// instant is the process's reading of its clocks.
func (w *world) instant(p *proc) Instant {
	now := w.rate(p).shown(w.now)
	return Instant{Mono: now + p.mono, Wall: now + p.wall}
}

// when is the true time from which on a process's monotonic clock shows t.
func (w *world) when(p *proc, t time.Duration) time.Duration {
	return w.rate(p).when(t - p.mono)
}

// dropStrays forgets calls without a reply to wait for that change nothing.
func (w *world) dropStrays() {
	w.msgs = slices.DeleteFunc(w.msgs, func(m message) bool {
		if !m.stray {
			return false
		}
		switch m.call.(type) {
		case Observe, FetchGeneration:
			return true
		}
		return m.done
	})
}

// ownStore makes the store one that no other world has, and returns what it
// was.
func (w *world) ownStore() *modelStore {
	before := w.store
	w.store = before.clone()
	return before
}

// carryOut lets the store see a call.
func (w *world) carryOut(i int) {
	msg := &w.msgs[i]
	before := w.ownStore()
	msg.reply = w.store.call(w.now+w.skew, msg.call)
	msg.done = true
	changed := false
	for p := range w.store.parts {
		was, is := before.parts[p].record, w.store.parts[p].record
		if was != is {
			changed = true
			if is.Epoch <= w.served[p] {
				w.fail("S2: partition %d is granted to %s at epoch %d after it was served at epoch %d", p, is.Owner, is.Epoch, w.served[p])
			}
		}
		changed = changed || w.store.parts[p].version != before.parts[p].version
		if was.Owner != is.Owner && w.store.session(is.Owner) == nil {
			w.fail("M: partition %d is given to %s, which has no session", p, is.Owner)
		}
	}
	if changed && w.left[evRollback] > 0 {
		w.past = append(w.past, before)
		w.past = w.past[max(0, len(w.past)-2):]
	}
	if !changed {
		return
	}
	h := w.store.hint(before)
	if w.sc.bare {
		h.Partitions = nil
	}
	if h.Partitions != nil && w.left[evLate] > 0 {
		w.told = append(w.told, h)
		w.told = w.told[max(0, len(w.told)-2):]
	}
	if !w.sc.poll {
		w.hint(*msg, h)
	}
}

// hint tells the workers that something changed in the store. The one that will read it from the
// reply need not look for it.
func (w *world) hint(msg message, h records.Hint) {
	for _, p := range w.procs {
		if p.up && p.paused < 0 {
			w.takeHint(p, h, p.slot != msg.from || msg.stray)
		}
	}
}

func (w *world) takeHint(p *proc, h records.Hint, look bool) {
	if h.Partitions != nil {
		w.step(p, Hinted{h})
	}
	if look && !p.m.Knows(h) {
		w.step(p, Changed{})
	}
}

func (f *fingerprinter) hints() {
	f.int(len(f.w.told))
	for _, h := range f.w.told {
		f.generation(h.Generation)
		for _, p := range f.w.procs {
			for _, m := range p.lives() {
				f.bools(h.Generation == m.generation, h.Version <= m.snapshot.Version, h.Version == m.snapshot.Version+1)
			}
		}
		for _, s := range h.Partitions {
			f.int(s.Partition)
			f.record(s.Partition, s.Record)
			f.residue(s.Partition, s.Residue)
		}
	}
}

// answer hands the reply of a call to its worker.
func (w *world) answer(i int) {
	msg := w.msgs[i]
	w.msgs = slices.Delete(w.msgs, i, i+1)
	if !msg.stray {
		w.reply(msg, msg.reply)
	}
}

// reply hands a reply to the life of a worker that made the call.
func (w *world) reply(msg message, r Reply) {
	p := w.procs[msg.from]
	for _, m := range p.lives() {
		if m.me() == msg.by {
			w.stepLife(p, m, r)
		}
	}
}

var errUnknown = errors.New("timeout")

// timeout lets a worker give up on a call that stays under way.
func (w *world) timeout(i int) {
	msg := &w.msgs[i]
	msg.stray = true
	gone := *msg
	w.dropStrays()
	w.reply(gone, Reply{ID: callID(gone.call), Err: errUnknown})
}

func callID(e Effect) uint64 {
	if call, ok := e.(StoreCall); ok {
		return call.CallID()
	}
	return 0
}

// truth is what gossip would tell a worker now.
func (w *world) truth(p *proc) gossip {
	g := gossip{ring: w.ring}
	for i, q := range w.procs {
		suspected := w.sc.suspect && !w.calm && i == 0 && p != q
		if q.life > 0 && !q.noticed && !q.leaving && !suspected {
			g.lives[i] = int8(q.life)
		}
	}
	p0 := p.seen
	p.seen = g // what it will say of itself
	for i, q := range w.procs {
		if g.lives[i] > 0 {
			g.views[i] = q.seen.digest()
		}
	}
	p.seen = p0
	return g
}

// tell brings a worker's view up to date, and lets those who have the same
// view know.
func (w *world) tell(p *proc) {
	w.show(p)
	for _, q := range w.procs {
		if q != p && q.up && q.paused < 0 && q.seen.digest() == p.seen.digest() && q.seen != w.truth(q) {
			w.show(q)
		}
	}
}

func (w *world) show(p *proc) {
	p.seen = w.truth(p)
	v := View{Digest: p.seen.digest()}
	var index [len(p.seen.lives)]int32
	for i, l := range p.seen.lives {
		if l > 0 {
			index[i] = int32(len(v.Workers))
			v.Workers = append(v.Workers, Peer{Incarnation: w.procs[i].name, View: p.seen.views[i]})
		}
	}
	for part := range w.sc.views[p.seen.ring] {
		owner := int32(-1)
		for _, slot := range w.sc.views[p.seen.ring][part] {
			if p.seen.lives[slot] > 0 {
				owner = index[slot]
				break
			}
		}
		v.Owners = append(v.Owners, owner)
	}
	w.step(p, v)
}

// pass lets time pass until the next moment at which something is due. A
// handler that was told to end takes no longer than S1 asks of it.
func (w *world) pass() time.Duration { return w.passUntil(w.now + w.store.ttl) }

func (w *world) passUntil(end time.Duration) time.Duration {
	d := end - w.now
	for _, p := range w.procs {
		if !p.up || p.paused >= 0 {
			continue
		}
		now := w.instant(p)
		for _, m := range p.lives() {
			d = min(d, max(w.when(p, now.Mono+min(m.Next(now), 2*w.store.ttl))-w.now, w.store.ttl/100))
		}
		for _, e := range p.execs {
			if w.mustEnd(e) {
				d = min(d, max(e.endBy-w.now, 0))
			}
		}
		for _, l := range p.locks {
			if !l.ending {
				d = min(d, max(w.when(p, l.ends)-w.now, 0))
			}
		}
	}
	w.now += d
	for _, p := range w.procs {
		if !p.up || p.paused >= 0 {
			continue
		}
		for i := len(p.execs) - 1; i >= 0; i-- {
			if w.mustEnd(p.execs[i]) && w.now >= p.execs[i].endBy {
				w.end(p, i)
			}
		}
		w.expireWritten(p)
		w.endLocks(p, func(l lock) bool { return !l.kept() && w.instant(p).Mono >= l.ends })
	}
	for _, p := range w.procs {
		if !p.up || p.paused >= 0 {
			continue
		}
		for _, m := range p.lives() {
			if m.Next(w.instant(p)) == 0 {
				w.stepLife(p, m, Tick{})
			}
		}
	}
	return d
}

// mustEnd reports whether an execution ends when its time has come. A request
// that has stopped before it runs may stay so for any time.
func (w *world) mustEnd(e exec) bool { return e.cancelled && (e.running || !w.sc.lives) }
