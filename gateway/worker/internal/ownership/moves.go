package ownership

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/internal/handoff"
	"github.com/keyway-go/keyway/internal/metrics"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/status"
	"github.com/keyway-go/keyway/ring"
)

// Moves remembers which partitions the worker took over, gave away and lost, and which of their
// keys still run at the former owner. The shell's goroutine reports events to it. Moves of one kind
// that follow each other closely are logged as one line.
type Moves struct {
	cfg *Config

	// The fields below belong to the shell's goroutine.
	parts      []movingPartition
	quarantine time.Duration // the latest end of one, since the worker's start
	placements string        // in the latest view

	mu        sync.Mutex             // guards what follows
	members   map[string]*seenMember // by incarnation; the shell's goroutine alone changes them, and reads them without mu
	bursts    []*burst               // the oldest first
	inherited map[int][]lingering    // by partition

	counts [directions][reasons]atomic.Int64 // of partitions
	took   [directions]metrics.Latencies
}

// movingPartition is what moves knows of one partition. Times are since the worker's start.
type movingPartition struct {
	target string        // incarnation that the ring wants to own it
	since  time.Duration // when that began
	placed bool          // because of other placements
	owner  string        // incarnation that the record names
	from   string        // that it named before
	closed time.Duration // when this worker closed it, while nobody else owns it; 0 if it has not
	runs   int           // keys that ran on then
}

// seenMember is what moves knows of an incarnation.
type seenMember struct {
	name   string // never changes
	own    bool   // a life of this process
	state  ring.State
	active time.Duration // when it came onto the ring, since the worker's start
	gone   bool
}

func (m *Moves) init(cfg *Config) {
	m.cfg, m.parts, m.members = cfg, make([]movingPartition, len(cfg.Keys.Parts)), make(map[string]*seenMember)
	m.inherited = make(map[int][]lingering)
}

// now returns the time since the worker's start, which is not 0.
func (m *Moves) now() time.Duration { return max(m.cfg.Keys.Now(), 1) }

func (m *Moves) begin(incarnation string) {
	m.know(incarnation, &seenMember{name: m.cfg.Name, own: true})
}

// session records the name of an incarnation, which may be gone already.
func (m *Moves) session(incarnation, name string) {
	if m.members[incarnation] == nil {
		m.know(incarnation, &seenMember{name: name, gone: true})
	}
}

func (m *Moves) know(incarnation string, s *seenMember) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.members[incarnation] = s
}

// NameOf returns the name of an incarnation's worker, or the incarnation if that is not known.
func (m *Moves) NameOf(incarnation string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.nameLocked(incarnation)
}

func (m *Moves) nameLocked(incarnation string) string {
	if s := m.members[incarnation]; s != nil {
		return cmp.Or(s.name, incarnation)
	}
	return incarnation
}

// view takes a changed view, of the same ring or another one. It returns the
// incarnations that are gone without having said that they leave, and whether
// another worker joined the ring, or came, went or changed its state otherwise.
func (m *Moves) view(v *ring.View, sameRing bool) (died []string, joined, changed bool) {
	now := m.now()
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
		if !s.own && (s.state != member.State || s.gone) {
			joins := member.State == ring.StateActive
			joined, changed = joined || joins, changed || !joins
		}
		s.state, s.gone = member.State, false
	}
	for inc, s := range m.members {
		if _, there := v.Find(inc); there || s.gone {
			continue
		}
		changed = true
		if s.gone = true; s.state != ring.StateLeaving && !s.own {
			died = append(died, inc)
		}
	}
	m.prune(len(v.Members))
	placed := v.Placements != m.placements && !joined && !changed
	m.placements = v.Placements
	if sameRing {
		return died, joined, changed
	}
	for p := range m.parts {
		target, _ := v.Owner(p)
		if part := &m.parts[p]; part.target != target.Incarnation {
			part.target, part.since, part.placed = target.Incarnation, now, placed
		}
	}
	return died, joined, changed
}

// prune forgets members that are gone and own nothing, once there are many.
func (m *Moves) prune(members int) {
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
		}
	}
}

// waits reports whether a key that this worker serves waits for its former owner.
func (m *Moves) waits() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.inherited) > 0
}

// owned returns how many partitions the records give an incarnation.
func (m *Moves) owned(incarnation string) (n int) {
	for p := range m.parts {
		if m.parts[p].owner == incarnation {
			n++
		}
	}
	return n
}

// owner records the owner of a partition, as learnt by the worker's incarnation self. why is the
// worker's own reason for giving partitions away, moveRebalance for none.
func (m *Moves) owner(self string, p int, owner string, why reason) {
	part := &m.parts[p]
	if part.owner == owner {
		return
	}
	part.from, part.owner = part.owner, owner
	if part.closed == 0 || owner == self {
		return
	}
	if why == moveRebalance && part.target == owner {
		why = m.whyRing(part)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.endLocked(p, moveGiven, why, owner)
}

// opened records that a life begins to serve a partition.
func (m *Moves) opened(self string, e handoff.OpenTable) {
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
	}
}

// closed records that a life has closed a partition.
func (m *Moves) closed(self string, c handoff.Closed) {
	part := &m.parts[c.Partition]
	part.closed, part.runs = m.now(), len(c.Running)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.inherited, c.Partition) // it goes along
	if part.owner != self {
		m.endLocked(c.Partition, moveLost, moveClaimed, part.owner)
	}
}

// untaken records what became of the partitions that a life had closed and no worker took.
func (m *Moves) untaken(self string, became direction, why reason) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for p := range m.parts {
		if part := &m.parts[p]; part.closed != 0 && part.owner == self {
			m.endLocked(p, became, why, "")
		}
	}
}

// endLocked records the end of a partition's move.
func (m *Moves) endLocked(p int, became direction, why reason, to string) {
	part := &m.parts[p]
	m.noteLocked(became, why, to, m.now()-part.closed, part.runs)
	part.closed = 0
}

// whyTaken returns why a life takes over a partition.
func (m *Moves) whyTaken(part *movingPartition) reason {
	from := m.members[part.from]
	_, previous := m.cfg.Previous[part.from]
	switch {
	case part.from == "" && m.quarantine > part.since:
		return moveQuarantine
	case part.from == "":
		return moveUnowned
	case previous:
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
func (m *Moves) lives(name string) bool {
	for _, s := range m.members {
		if s.name == name && !s.gone {
			return true
		}
	}
	return false
}

// whyRing returns why the ring wants another owner of a partition.
func (m *Moves) whyRing(part *movingPartition) reason {
	if part.placed {
		return movePlacement
	}
	if s := m.members[part.target]; s != nil && s.active == part.since {
		return moveJoin
	}
	return moveRebalance
}

// lingering is residue: a key that runs on at a former owner.
type lingering struct {
	records.Residue
	since time.Time
	burst *burst // with which the key's partition came; nil if it came back
}

// unblocked records that a key no longer runs at the former owner of its partition.
func (m *Moves) unblocked(p int, key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	rest := slices.DeleteFunc(m.inherited[p], func(l lingering) bool {
		if l.Key == key && l.burst != nil {
			l.burst.running--
		}
		return l.Key == key
	})
	if m.inherited[p] = rest; len(rest) == 0 {
		delete(m.inherited, p)
	}
}

// OldestResidue returns for how long keys have been waited for that run on at a former owner of
// their partition, at the longest; 0 if there are none.
func (m *Moves) OldestResidue() (age time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, list := range m.inherited {
		for i := range list {
			age = max(age, time.Since(list[i].since))
		}
	}
	return age
}

// Residue returns the residue that this worker waits for, by holder, that of the most keys first.
func (m *Moves) Residue(now time.Time) (list []status.ResidueStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	held := make(map[string]status.ResidueStatus)
	for _, lists := range m.inherited {
		for _, l := range lists {
			h := held[l.Holder]
			h.Keys++
			h.OldestSeconds = max(h.OldestSeconds, now.Sub(l.since).Seconds())
			held[l.Holder] = h
		}
	}
	for holder, h := range held {
		h.Worker = m.nameLocked(holder)
		list = append(list, h)
	}
	slices.SortFunc(list, func(a, b status.ResidueStatus) int {
		return cmp.Or(cmp.Compare(b.Keys, a.Keys), cmp.Compare(a.Worker, b.Worker))
	})
	return list
}

// ResidueOfKey returns the execution at a former owner that key waits for, nil for none.
func (m *Moves) ResidueOfKey(p int, key string, now time.Time) *status.KeyResidue {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.inherited[p] {
		if l.Key == key {
			return &status.KeyResidue{Worker: m.nameLocked(l.Holder), Token: l.Token, Seconds: now.Sub(l.since).Seconds()}
		}
	}
	return nil
}
