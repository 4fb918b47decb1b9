package handoff

import (
	"github.com/keyway-go/keyway/internal/records"
	"maps"
	"math"
	"slices"
	"time"
)

// peer is what we know of another incarnation's session. All times are Mono.
//
// Its lease began before its latest renewal was made, so it is over a TTL after that. Once the
// session has ended, its stamp in the store identifies that renewal: within a generation no session
// returns. A snapshot whose beat is at least the stamp was taken after the renewal. The TTL
// therefore runs from when we received the first such snapshot, even if we learned of the stamp
// much later. If a session is missing without a stamp, a renewal may have escaped us: then the TTL
// runs from when we noticed.
//
// The end of that time is not enough. An incarnation without a session that we saw in this
// generation may have registered since, and while reads fail we do not learn of it. So a snapshot
// requested after that time must show that it is absent, with a close look: any other snapshot may
// be of a generation that is over.
//
// A peer is a suspect while gossip does not count it among the active workers. A close look returns
// its stamp, and so the end of its session.
type peer struct {
	present bool
	suspect bool          // and present
	stamp   int64         // of its latest renewal that we know of; 0 for none
	seen    time.Duration // when we received the first snapshot taken after that
	deadAt  time.Duration // unless present: when its lease is certainly over
}

// heard says when we received the first snapshot with a beat.
type heard struct {
	beat int64
	at   time.Duration // Mono
}

// closeTogether divides the TTL into parts; of the beats in one part the machine keeps two at most.
const closeTogether = 64

// observeStore observes the store when that is due.
func (m *Machine) observeStore() {
	if m.observe.id == 0 && m.now.Mono >= m.nextLook() {
		m.emit(Observe{Call: m.beginCall(&m.observe), Since: m.snapshot.Version, Suspects: m.suspects()})
		m.again = false
	}
}

// nextLook returns when to look again. A look that failed does not make the next one
// sooner. A close look that is due later than the failed one keeps its time.
func (m *Machine) nextLook() time.Duration {
	if at := m.closeLookAt(); !m.failed || at > m.observe.sent.Mono {
		return min(m.observe.next, at)
	}
	return m.observe.next
}

// lookSoon looks at once at what may have changed, unless looks fail.
func (m *Machine) lookSoon() {
	if !m.failed {
		m.observe.next = 0
	}
}

// closeFrom returns from when on looks at a peer are close. If it is absent: one look,
// when its lease is certainly over. If it is a suspect: while its stamp is not known, and
// when its session should have ended, until it has or the stamp is another one.
func (m *Machine) closeFrom(p peer) time.Duration {
	switch {
	case !p.present && m.asked < p.deadAt:
		return p.deadAt
	case p.suspect && p.stamp == 0:
		return 0
	case p.suspect:
		return p.seen + m.cfg.TTL
	}
	return math.MaxInt64
}

// closeLookAt returns when to take a close look, however often we look otherwise.
func (m *Machine) closeLookAt() time.Duration {
	at := time.Duration(math.MaxInt64)
	for _, p := range m.peers {
		if from := m.closeFrom(p); from > m.asked {
			at = min(at, from)
		}
	}
	return at
}

// suspects returns the incarnations that an Observe now must ask about.
func (m *Machine) suspects() (close []string) {
	for inc, p := range m.peers {
		if m.now.Mono >= m.closeFrom(p) {
			close = append(close, inc)
		}
	}
	slices.Sort(close)
	return close
}

func (m *Machine) takeObserve(r Reply) {
	m.failed = r.Err != nil
	if m.again {
		m.lookSoon()
	}
	if m.failed {
		m.refused(r.Err)
		return
	}
	if r.Snapshot.Generation != m.generation {
		m.reassert()
		return
	}
	changed := !m.observed || r.Snapshot.Version != m.snapshot.Version
	if changed && !shows(r.Snapshot.Sessions, m.me()) && m.on(guardOwnSession) {
		m.lose(records.ErrSessionGone)
		return
	}
	m.jumped = m.jumped || m.jumps(r.Snapshot.Now)
	before := m.asked
	m.see(r.Snapshot, m.observe.sent.Mono)
	if changed {
		m.recheck = true
		m.takeSessions()
	}
	m.takeStamps()
	for _, p := range m.peers {
		if !p.present && before < p.deadAt && m.asked >= p.deadAt {
			m.recheck = true
		}
	}
	m.takeStates(r.Snapshot.Partitions)
	m.prune()
}

// takeHint takes what a hint tells of partitions, unless a look has shown it. If nothing else has changed since the
// latest look, the next one need not read it again. A look under way may not show it, and sets the version.
func (m *Machine) takeHint(h records.Hint) {
	if m.phase != phaseLive || !m.observed || h.Generation != m.generation && m.on(guardHintGeneration) ||
		h.Version <= m.snapshot.Version && m.on(guardHint) {
		return
	}
	m.takeStates(h.Partitions)
	next := h.Version == m.snapshot.Version+1 || !m.on(guardHintNext)
	if h.Partitions != nil && next && m.observe.id == 0 {
		m.snapshot.Version = h.Version
	}
}

// Knows reports whether the machine has seen all that had changed in the store by a hint.
func (m *Machine) Knows(h records.Hint) bool {
	return h.Generation == m.generation && h.Version <= m.snapshot.Version && m.observed
}

func (m *Machine) takeStates(states []records.PartitionState) {
	for _, s := range states {
		m.takeState(s)
	}
	for _, s := range states {
		m.track(s)
	}
}

// takeRenewed counts a renewal as a cheap look if its reply says that nothing has changed since the latest look. Its
// beat is higher if the store made it after that look. It takes no stamps, so it is no close look.
func (m *Machine) takeRenewed(s records.Snapshot) {
	switch {
	case !m.observed || m.observe.id != 0 || s.Generation != m.generation || s.Beat <= m.snapshot.Beat:
	case s.Version != m.snapshot.Version:
		m.lookSoon()
	case len(m.suspects()) == 0:
		s.Sessions, s.Gone, s.Released = m.snapshot.Sessions, m.snapshot.Gone, m.snapshot.Released
		m.see(s, max(m.asked, m.renew.sent.Mono))
		m.observe.next = m.now.Mono + m.pollEvery
	}
}

// see takes a snapshot that was asked for at that time.
func (m *Machine) see(s records.Snapshot, asked time.Duration) {
	if (s.Quarantine == 0) != (m.snapshot.Quarantine == 0) {
		m.recheck = true
	}
	m.snapshot, m.observed, m.asked = s, true, asked
	m.snapshot.Partitions = nil
	m.hear(s.Beat)
}

// hear records the beat of a snapshot received now. If several beats are close together, it keeps
// the first and the last. A forgotten beat makes a renewal count as later than it was, which is
// safe.
func (m *Machine) hear(beat int64) {
	n, h := len(m.heard), heard{beat, m.now.Mono}
	switch {
	case n > 0 && beat < m.heard[n-1].beat:
		m.heard = []heard{h} // the store went back
	case n > 0 && beat == m.heard[n-1].beat:
	case n > 1 && h.at-m.heard[n-2].at < m.cfg.TTL/closeTogether:
		m.heard[n-1] = h
	default:
		m.heard = append(m.heard, h)
	}
	for len(m.heard) > 1 && m.heard[1].at <= m.now.Mono-m.cfg.TTL {
		m.heard = m.heard[1:]
	}
}

// heardOf returns when we received the first snapshot that was taken after a renewal.
func (m *Machine) heardOf(stamp int64) time.Duration {
	for _, h := range m.heard {
		if h.beat >= stamp {
			return h.at
		}
	}
	return m.now.Mono
}

// shows reports whether an incarnation is among sessions. For our own the
// answer is definite: we look only while we are registered, so the session was
// there before we asked, and within one generation it does not come back.
func shows(sessions []records.SessionState, inc string) bool {
	return slices.ContainsFunc(sessions, func(s records.SessionState) bool { return s.Incarnation == inc })
}

// jumps reports whether the store's clock gained on ours since the latest snapshot. The store read
// the new snapshot at now. Here, the time between the two is at most the time from asking for the
// first to receiving the second, plus drift. If more has passed in the store, both of our clocks
// stood still or the store's stepped ahead. Either way the session ends sooner than the lease says.
func (m *Machine) jumps(now time.Duration) bool {
	return m.observed && now-m.snapshot.Now > m.now.Mono-m.asked+m.drift
}

// prune forgets the incarnations that nothing depends on any more, once there are many.
func (m *Machine) prune() {
	if len(m.peers) <= 2*len(m.snapshot.Sessions)+64 {
		return
	}
	needed := make(map[string]bool)
	for p := range m.parts {
		needed[m.parts[p].record.Owner] = true
		for _, g := range m.inherited[p] {
			needed[g.Holder] = true
		}
	}
	maps.DeleteFunc(m.peers, func(inc string, p peer) bool { return !p.present && !needed[inc] })
}

// takeSessions records which peers have a session, and which had one.
func (m *Machine) takeSessions() {
	here := make(map[string]bool, len(m.snapshot.Sessions))
	for _, s := range m.snapshot.Sessions {
		here[s.Incarnation] = true
		if !m.peers[s.Incarnation].present {
			m.recheck = true
			m.peers[s.Incarnation] = peer{present: true}
		}
	}
	for _, g := range m.snapshot.Gone {
		if p, ok := m.peers[g.Incarnation]; ok && !here[g.Incarnation] && (p.present || p.stamp != g.Beat) {
			m.ended(p, g)
		}
	}
	for inc, p := range m.peers {
		if p.present && !here[inc] {
			m.vanish(inc)
		}
	}
	m.suspect()
}

// takeStamps records the latest renewals of suspects.
func (m *Machine) takeStamps() {
	for _, s := range m.snapshot.Stamps {
		if p, ok := m.peers[s.Incarnation]; ok && p.suspect {
			m.peers[s.Incarnation] = m.stamped(p, s.Beat)
		}
	}
}

func (m *Machine) stamped(p peer, beat int64) peer {
	if p.stamp != beat && (p.stamp == 0 || m.on(guardStamp)) {
		p.stamp, p.seen = beat, m.heardOf(beat)
	}
	return p
}

// ended records that a session has ended, and its last renewal.
func (m *Machine) ended(p peer, g records.Stamp) {
	p = m.stamped(p, g.Beat)
	m.absent(g.Incarnation, p, p.seen)
}

// vanish records that a session is gone without our knowing its last renewal.
func (m *Machine) vanish(inc string) { m.absent(inc, peer{}, m.now.Mono) }

// absent records that an incarnation has no session, and has not renewed it since.
func (m *Machine) absent(inc string, p peer, since time.Duration) {
	p.present, p.suspect, p.deadAt = false, false, since+m.cfg.TTL
	if !m.on(guardSilence) {
		p.deadAt = m.now.Mono
	}
	m.peers[inc] = p
	m.recheck = true
}

// suspect finds out which peers are suspects.
func (m *Machine) suspect() {
	active := map[string]bool{m.me(): true}
	for _, w := range m.view.Workers {
		active[w.Incarnation] = true
	}
	for inc, p := range m.peers {
		if suspect := p.present && !active[inc]; suspect != p.suspect {
			p.suspect, p.stamp = suspect, 0
			m.peers[inc] = p
		}
	}
}

// track begins to watch the incarnations that a partition depends on.
func (m *Machine) track(s records.PartitionState) {
	m.watch(s.Record.Owner)
	for _, r := range s.Residue {
		m.watch(r.Holder)
	}
}

func (m *Machine) watch(inc string) {
	if _, ok := m.peers[inc]; ok || inc == "" {
		return
	}
	m.vanish(inc)
	for _, g := range m.snapshot.Gone {
		if g.Incarnation == inc {
			m.ended(peer{}, g)
		}
	}
}

// alive reports whether an incarnation had a session when we last looked.
func (m *Machine) alive(inc string) bool { return m.peers[inc].present && !m.released(inc) }

// dead reports whether an incarnation can certainly start and run nothing any more.
func (m *Machine) dead(inc string) bool {
	if m.released(inc) {
		return true
	}
	p, ok := m.peers[inc]
	at := m.asked
	if !m.on(guardAbsent) {
		at = m.now.Mono
	}
	return ok && !p.present && at >= p.deadAt
}

// provenDead reports whether to tell other workers that an incarnation is dead. A worker that
// claims its partitions may have started too recently to know.
func (m *Machine) provenDead(inc string) bool {
	return inc != "" && inc != m.me() && m.pastQuarantine() && m.dead(inc) && !m.released(inc)
}

// releaseDead releases the session of an incarnation that is certainly dead, so that no other
// worker must wait for its end again.
func (m *Machine) releaseDead() {
	if m.deadPeer == "" || !m.ready(&m.releasePeer) {
		return
	}
	if !m.provenDead(m.deadPeer) {
		m.deadPeer = ""
		return
	}
	call := m.beginCall(&m.releasePeer)
	call.Incarnation = m.deadPeer
	m.emit(Release{call})
}

// released reports whether an incarnation gave its session up after its last handler had ended.
func (m *Machine) released(inc string) bool { return slices.Contains(m.snapshot.Released, inc) }
