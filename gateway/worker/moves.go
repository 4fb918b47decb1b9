package worker

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/metrics"
	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/handoff"
)

// direction is the way in which a partition moves.
type direction uint8

// The directions of moves.
const (
	moveTaken direction = iota // this worker took it over
	moveGiven                  // this worker gave it away
	moveLost                   // it was taken from this worker
	directions
)

// reason is why a partition moves.
type reason uint8

// The reasons of moves.
const (
	moveJoin       reason = iota // the taker came onto the ring
	moveRebalance                // the ring gave it to another one of its workers
	moveLeave                    // the giver leaves for good
	moveDrain                    // the giver, this worker, was told to leave the ring
	moveApp                      // the app of this worker, the giver, does not answer
	moveStore                    // this worker, the giver, uses another store than others
	moveWithdrawn                // the giver, another worker, is off the ring for one of the three
	moveDeath                    // the former owner has died
	moveRestart                  // and was started again
	moveSession                  // this worker has lost its session
	moveClaimed                  // another worker owns it without having been given it
	moveUnowned                  // nobody had it
	moveQuarantine               // and the store was so young that it was not to be claimed
	reasons
)

var (
	directionNames = [directions]string{"taken", "given", "lost"}
	reasonNames    = [reasons]string{"join", "rebalance", "leave", "drain", "app", "store", "withdrawn", "death", "restart", "session", "claimed", "unowned", "quarantine"}
	moveMessages   = [directions]string{"partitions taken over", "partitions given away", "partitions lost"}
	because        = [directions][reasons]string{
		moveTaken: {
			moveJoin: "this worker joined the ring", moveRebalance: "the ring changed", moveLeave: "it leaves",
			moveWithdrawn: "it is off the ring: it was drained, or its app does not answer", moveDeath: "it died", moveRestart: "it was started again",
			moveSession: "this worker had lost its session", moveUnowned: "nobody had them", moveQuarantine: "nobody had them, and the store was new or had lost data",
		},
		moveGiven: {
			moveJoin: "it joined the ring", moveRebalance: "the ring changed", moveLeave: "this worker leaves", moveDrain: "this worker is drained",
			moveApp: "this worker's app does not answer", moveStore: "this worker uses another store",
		},
		moveLost: {moveSession: "this worker lost its session", moveClaimed: "another worker owns them without having been given them: the store lost data"},
	}
)

const (
	maxBursts    = 64                     // that are remembered
	burstQuiet   = 300 * time.Millisecond // without a further move, after which a burst is over
	burstLongest = 10 * time.Second       // after which it is logged even so
)

// moves remembers which partitions the worker took over, gave away and lost, and
// which keys of these still run at their former owner. The shell's goroutine tells it
// of what happens; it logs one line for moves of one kind that come close together.
type moves struct {
	worker *Worker

	// What follows belongs to the shell's goroutine.
	parts      []movingPartition
	members    map[string]*seenMember // by incarnation
	looks      int                    // views seen
	quarantine time.Duration          // the latest end of one, since the worker's start

	mu        sync.Mutex // guards what follows
	bursts    []*burst   // the oldest first
	inherited map[int][]lingering
	left      map[int][]lingering
	names     map[string]string        // of members, by incarnation
	alarms    map[string]time.Duration // by holder: the age of its residue that is logged next
	alarmAt   time.Time                // when to look at residue; zero for never

	counts [directions][reasons]atomic.Int64 // of partitions
	took   [directions]metrics.Latencies
}

// movingPartition is what moves knows of one partition. Times are since the worker's start.
type movingPartition struct {
	target string        // incarnation that the ring wants to own it
	since  time.Duration // when that began
	owner  string        // incarnation that the record names
	from   string        // that it named before
	closed time.Duration // when this worker closed it, while nobody else owns it; 0 if it has not
	runs   int           // keys that ran on then
}

// seenMember is what moves knows of an incarnation.
type seenMember struct {
	name   string
	own    bool // a life of this process
	state  ring.State
	active time.Duration // when it came onto the ring, since the worker's start
	look   int           // at which it was seen last
	gone   bool
}

// burst is moves of one kind.
type burst struct {
	direction direction
	reason    reason
	peer      string // name of the other worker; "" for none
	count     int
	began     time.Time
	last      time.Time
	longest   time.Duration
	residue   int
	running   int
	logged    bool
}

// lingering is residue: a key that runs on at a former owner.
type lingering struct {
	handoff.Residue
	since time.Time
	burst *burst // with which the key's partition came; nil for residue of this worker's own
}

func (m *moves) init(w *Worker) {
	m.worker, m.parts, m.members = w, make([]movingPartition, len(w.parts)), make(map[string]*seenMember)
	m.inherited, m.left = make(map[int][]lingering), make(map[int][]lingering)
	m.alarms, m.names = make(map[string]time.Duration), make(map[string]string)
}

// now returns the time since the worker's start, which is not 0.
func (m *moves) now() time.Duration { return max(m.worker.now(), 1) }

// begin notes a new life of this worker.
func (m *moves) begin(incarnation string) {
	m.know(incarnation, &seenMember{name: m.worker.name, own: true})
}

// session notes whose an incarnation is, which may be gone already.
func (m *moves) session(incarnation, name string) {
	if m.members[incarnation] == nil {
		m.know(incarnation, &seenMember{name: name, gone: true})
	}
}

// know adds a member.
func (m *moves) know(incarnation string, s *seenMember) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.members[incarnation], m.names[incarnation] = s, s.name
}

// name returns the name of an incarnation, or the incarnation if that is not known.
func (m *moves) name(incarnation string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.nameLocked(incarnation)
}

func (m *moves) nameLocked(incarnation string) string {
	return cmp.Or(m.names[incarnation], incarnation)
}

// view takes a changed view, and returns the incarnations that are gone without
// having said that they leave.
func (m *moves) view(v *ring.View) (died []string) {
	now := m.now()
	m.looks++
	for _, member := range v.Members {
		if member.Role != ring.RoleWorker || member.Incarnation == "" {
			continue
		}
		s := m.members[member.Incarnation]
		if s == nil {
			s = &seenMember{name: member.Name}
			m.know(member.Incarnation, s)
		}
		if member.State == ring.StateActive && (s.state != ring.StateActive || s.gone) {
			s.active = now
		}
		s.state, s.look, s.gone = member.State, m.looks, false
	}
	for inc, s := range m.members {
		if s.look == m.looks || s.gone {
			continue
		}
		if s.gone = true; s.state != ring.StateLeaving && !s.own {
			died = append(died, inc)
		}
	}
	m.prune(len(v.Members))
	for p := range m.parts {
		target, _ := v.Owner(p)
		if part := &m.parts[p]; part.target != target.Incarnation {
			part.target, part.since = target.Incarnation, now
		}
	}
	return died
}

// prune forgets members that are gone and own nothing, once there are many.
func (m *moves) prune(members int) {
	if len(m.members) <= 2*members+64 {
		return
	}
	needed := make(map[string]bool)
	for p := range m.parts {
		needed[m.parts[p].owner], needed[m.parts[p].from] = true, true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for inc, s := range m.members {
		if s.gone && !needed[inc] {
			delete(m.members, inc)
			delete(m.names, inc)
		}
	}
}

// owned returns how many partitions the records give an incarnation.
func (m *moves) owned(incarnation string) (n int) {
	for p := range m.parts {
		if m.parts[p].owner == incarnation {
			n++
		}
	}
	return n
}

// owner takes a partition's record, as the life self of this worker has learnt it.
func (m *moves) owner(self string, p int, owner string) {
	part := &m.parts[p]
	if part.owner == owner {
		return
	}
	part.from, part.owner = part.owner, owner
	if part.closed != 0 && owner != self {
		m.given(p, owner)
	}
}

// opened notes that a life begins to serve a partition.
func (m *moves) opened(self string, e handoff.OpenTable) {
	part, now := &m.parts[e.Partition], m.now()
	back := part.closed != 0 // before anybody else had it
	part.closed = 0
	took := time.Duration(0)
	if part.target == self {
		took = now - part.since
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var b *burst
	if !back && part.from != self {
		b = m.noteLocked(moveTaken, m.whyTaken(part), part.from, took, len(e.Blocked))
	}
	part.from = self
	since := time.Now()
	for _, r := range e.Blocked {
		m.inherited[e.Partition] = append(m.inherited[e.Partition], lingering{r, since, b})
		m.alarmLocked(since)
	}
}

// whyTaken returns why a life takes over a partition.
func (m *moves) whyTaken(part *movingPartition) reason {
	from := m.members[part.from]
	switch {
	case part.from == "" && m.quarantine > part.since:
		return moveQuarantine
	case part.from == "":
		return moveUnowned
	case slices.Contains(m.worker.cfg.Previous, part.from):
		return moveRestart
	case from == nil:
		return moveDeath
	case from.own:
		return moveSession
	case from.state == ring.StateLeaving:
		return moveLeave
	case from.gone && m.lives(from.name):
		return moveRestart
	case from.gone:
		return moveDeath
	case from.state != ring.StateActive:
		return moveWithdrawn
	}
	return m.whyRing(part)
}

// lives reports whether a worker of that name is there.
func (m *moves) lives(name string) bool {
	for _, s := range m.members {
		if s.name == name && !s.gone {
			return true
		}
	}
	return false
}

// whyRing returns why the ring wants another owner of a partition.
func (m *moves) whyRing(part *movingPartition) reason {
	if s := m.members[part.target]; s != nil && s.active == part.since {
		return moveJoin
	}
	return moveRebalance
}

// closed notes that a life has closed a partition.
func (m *moves) closed(self string, c handoff.Closed) {
	part := &m.parts[c.Partition]
	part.closed, part.runs = m.now(), len(c.Running)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.inherited, c.Partition) // it goes along
	m.calmLocked()
	since := time.Now()
	for _, e := range c.Running {
		r := handoff.Residue{Key: e.Key, Holder: self, Token: e.Token}
		if !slices.ContainsFunc(m.left[c.Partition], func(l lingering) bool { return l.Residue == r }) {
			m.left[c.Partition] = append(m.left[c.Partition], lingering{Residue: r, since: since})
			m.alarmLocked(since)
		}
	}
	if part.owner != self {
		m.lostLocked(c.Partition, moveClaimed, part.owner)
	}
}

// given notes that a partition which this worker has closed is another one's.
func (m *moves) given(p int, to string) {
	part := &m.parts[p]
	s := m.worker.shell
	why := moveRebalance
	switch {
	case s.leaving:
		why = moveLeave
	case s.drained:
		why = moveDrain
	case s.appless != nil:
		why = moveApp
	case s.agree.blocked:
		why = moveStore
	case part.target == to:
		why = m.whyRing(part)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.noteLocked(moveGiven, why, to, m.now()-part.closed, part.runs)
	part.closed = 0
}

// lost notes that a life has lost its session, and with it what it had closed for that.
func (m *moves) lost(self string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for p := range m.parts {
		if part := &m.parts[p]; part.closed != 0 && part.owner == self {
			m.lostLocked(p, moveSession, "")
		}
	}
}

func (m *moves) lostLocked(p int, why reason, to string) {
	part := &m.parts[p]
	m.noteLocked(moveLost, why, to, m.now()-part.closed, part.runs)
	part.closed = 0
}

// ended notes that a life has left for good: what it had closed and nobody took is
// given up.
func (m *moves) ended(self string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for p := range m.parts {
		if part := &m.parts[p]; part.closed != 0 && part.owner == self {
			m.noteLocked(moveGiven, moveLeave, "", m.now()-part.closed, part.runs)
			part.closed = 0
		}
	}
}

// unblocked notes that a key runs no longer at the former owner of its partition.
func (m *moves) unblocked(p int, key string) {
	m.remove(m.inherited, p, func(l *lingering) bool { return l.Key == key })
}

// oldest returns for how long keys have been waited for that run on at a former owner of
// their partition, at the longest; 0 if there are none.
func (m *moves) oldest() (age time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, list := range m.inherited {
		for i := range list {
			age = max(age, time.Since(list[i].since))
		}
	}
	return age
}

// finished notes that an execution has ended whose partition this worker has closed.
func (m *moves) finished(in handoff.Finished) {
	m.remove(m.left, in.Partition, func(l *lingering) bool { return l.Key == in.Key && l.Token == in.Token })
}

// remove removes residue of a partition from a list.
func (m *moves) remove(list map[int][]lingering, p int, over func(*lingering) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	rest := slices.DeleteFunc(list[p], func(l lingering) bool {
		if !over(&l) {
			return false
		}
		if l.burst != nil {
			l.burst.running--
		}
		return true
	})
	if list[p] = rest; len(rest) == 0 {
		delete(list, p)
	}
	m.calmLocked()
}

// noteLocked adds one partition to the burst of its kind.
func (m *moves) noteLocked(d direction, why reason, peer string, took time.Duration, residue int) *burst {
	m.counts[d][why].Add(1)
	m.took[d].Observe(took)
	now, name := time.Now(), m.nameLocked(peer)
	i := slices.IndexFunc(m.bursts, func(b *burst) bool {
		return !b.logged && b.direction == d && b.reason == why && b.peer == name
	})
	if i < 0 {
		if len(m.bursts) == maxBursts {
			m.logLocked(m.bursts[0])
			m.bursts = slices.Delete(m.bursts, 0, 1)
		}
		i = len(m.bursts)
		m.bursts = append(m.bursts, &burst{direction: d, reason: why, peer: name, began: now})
	}
	b := m.bursts[i]
	b.count++
	b.last, b.longest = now, max(b.longest, took)
	b.residue += residue
	b.running += residue
	return b
}

// flush logs the bursts that are over, and residue that lasts. It returns after how
// long it wants to be called again.
func (m *moves) flush() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, wait := time.Now(), time.Hour
	for _, b := range m.bursts {
		if b.logged {
			continue
		}
		left := min(burstQuiet-now.Sub(b.last), burstLongest-now.Sub(b.began))
		if left <= 0 {
			m.logLocked(b)
			continue
		}
		wait = min(wait, left)
	}
	if m.alarmAt.IsZero() {
		return wait
	}
	if !now.Before(m.alarmAt) {
		m.warnLocked(now)
	}
	return min(wait, max(m.alarmAt.Sub(now), 0))
}

// logLocked logs a burst, once.
func (m *moves) logLocked(b *burst) {
	if b.logged {
		return
	}
	b.logged = true
	args := []any{"worker", m.worker.name, "partitions", b.count}
	if b.peer != "" {
		args = append(args, []string{"from", "to", "to"}[b.direction], b.peer)
	}
	args = append(args, "because", because[b.direction][b.reason], "took", b.longest.Round(time.Millisecond))
	if b.running > 0 {
		args = append(args, []string{"keys_still_running_there", "keys_still_running_here", "keys_still_running_here"}[b.direction], b.running)
	}
	if b.direction == moveLost {
		m.worker.cfg.Logger.Warn(moveMessages[b.direction], args...)
		return
	}
	m.worker.cfg.Logger.Info(moveMessages[b.direction], args...)
}

// alarmLocked has residue looked at that is there since then.
func (m *moves) alarmLocked(since time.Time) {
	at := since.Add(m.worker.cfg.SlowKey)
	if m.alarmAt.IsZero() || at.Before(m.alarmAt) {
		m.alarmAt = at
	}
}

// residueOf is the residue of one holder.
type residueOf struct {
	keys   int
	oldest time.Time
}

// residueLocked returns the residue by holder: of this worker, and what it waits for.
func (m *moves) residueLocked() map[string]residueOf {
	held := make(map[string]residueOf)
	for _, lists := range []map[int][]lingering{m.inherited, m.left} {
		for _, list := range lists {
			for i := range list {
				h := held[list[i].Holder]
				if h.keys++; h.oldest.IsZero() || list[i].since.Before(h.oldest) {
					h.oldest = list[i].since
				}
				held[list[i].Holder] = h
			}
		}
	}
	return held
}

// warnLocked logs residue that is older than Config.SlowKey, of each holder when it is
// twice as old as before.
func (m *moves) warnLocked(now time.Time) {
	m.alarmAt = time.Time{}
	for holder, h := range m.residueLocked() {
		after, age := m.alarms[holder], now.Sub(h.oldest)
		if after == 0 {
			after = m.worker.cfg.SlowKey
		}
		if age >= after {
			m.worker.cfg.Logger.Warn("executions at the former owner of partitions last: requests for their keys wait at the new one",
				"worker", m.nameLocked(holder), "keys", h.keys, "oldest", age.Round(time.Millisecond))
			after = 2 * age
			m.alarms[holder] = after
		}
		if at := h.oldest.Add(after); m.alarmAt.IsZero() || at.Before(m.alarmAt) {
			m.alarmAt = at
		}
	}
}

// calmLocked logs that residue which was warned of is no more.
func (m *moves) calmLocked() {
	if len(m.alarms) == 0 {
		return
	}
	held := m.residueLocked()
	for holder := range m.alarms {
		if held[holder].keys == 0 {
			delete(m.alarms, holder)
			m.worker.cfg.Logger.Info("the executions at the former owner of partitions have ended", "worker", m.nameLocked(holder))
		}
	}
}

// recent returns what is remembered, the latest first.
func (m *moves) recent() []gateway.Move {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]gateway.Move, 0, len(m.bursts))
	for _, b := range slices.Backward(m.bursts) {
		list = append(list, gateway.Move{
			Direction: directionNames[b.direction], Reason: reasonNames[b.reason], Because: because[b.direction][b.reason], Worker: b.peer,
			Partitions: b.count, Began: b.began, Ended: b.last, LongestSeconds: b.longest.Seconds(), Residue: b.residue, Running: b.running,
		})
	}
	return list
}
