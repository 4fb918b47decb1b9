package handoff

import (
	"maps"
	"math"
	"slices"
	"time"
)

// peer is what we saw of another incarnation's session. All times are Mono.
//
// Its lease began no later than the renewal that we last saw a sign of, which
// we noted later still. So it is over a TTL after the latest moment at which
// the session may have been renewed. That is when we first received its
// present count of renewals, if we asked for a snapshot that still showed
// that count after the incarnation must have given up for want of another
// renewal; then no later one can have been confirmed to it. If the session
// vanished before that, it did not expire in the normal way (the store's
// clock may have stepped), and a renewal may have escaped us: it is when we
// received the first snapshot without it.
//
// That the time has come is not enough: an incarnation that we saw no session
// of in this generation may have registered in it since, and while reads fail
// nobody tells us. So a snapshot asked for then must show that it is absent.
type peer struct {
	present  bool
	renewals int64
	seen     time.Duration // when we received the first snapshot with renewals
	asked    time.Duration // when we asked for the latest snapshot that showed it
	look     uint64        // which snapshot that was
	deadAt   time.Duration // unless present: when its lease is certainly over
}

// lookPercent is the part of the TTL after which an incarnation without
// another renewal has given up, seen from any other process's clock. It lies
// between 95, where a lease is surrendered, and 100: the difference to either is
// margin, for clocks that run at different rates and for the session to be looked
// at before it expires.
const lookPercent = 97

func (m *Machine) lookAfter() time.Duration { return m.cfg.TTL / 100 * lookPercent }

// look observes the store when that is due.
func (m *Machine) look() {
	if m.observe.id == 0 && m.now.Mono >= m.nextLook() {
		m.emit(Observe{ID: m.begin(&m.observe), Generation: m.generation, Incarnation: m.me(), Since: m.snapshot.Version})
		m.again = false
	}
}

// nextLook returns when to look again. Looks that fail are as far apart as those
// that do not, except that none waits that is to be made at a certain time.
func (m *Machine) nextLook() time.Duration {
	if at := m.lookAt(); !m.failed || at > m.observe.sent.Mono {
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

// lookAt returns when a silent session is to be looked at, however often we
// look otherwise: once before it expires, once when it has, and once when the
// lease of one that is absent is certainly over.
func (m *Machine) lookAt() time.Duration {
	at := time.Duration(math.MaxInt64)
	for _, p := range m.peers {
		switch {
		case !p.present && m.asked < p.deadAt:
			at = min(at, p.deadAt)
		case !p.present:
		case p.asked < p.seen+m.lookAfter():
			at = min(at, p.seen+m.lookAfter())
		case p.asked < p.seen+m.cfg.TTL:
			at = min(at, p.seen+m.cfg.TTL)
		}
	}
	return at
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
	if !shows(r.Snapshot.Sessions, m.me()) && m.on(guardOwnSession) {
		m.lose(ErrSessionGone)
		return
	}
	m.jumped = m.jumped || m.jumps(r.Snapshot.Now)
	over, released := m.snapshot.Quarantine == 0, m.snapshot.Released
	parts := r.Snapshot.Partitions
	m.snapshot = r.Snapshot
	m.snapshot.Partitions = nil
	if !m.observed || over != (m.snapshot.Quarantine == 0) || !slices.Equal(released, m.snapshot.Released) {
		m.recheck = true
	}
	m.observed = true
	m.looks++
	m.takeSessions(m.observe.sent.Mono)
	for _, s := range parts {
		m.takeState(s)
	}
	for _, s := range parts {
		m.track(s)
	}
	m.prune()
}

// shows reports whether an incarnation is among sessions. For our own the
// answer is definite: we look only while we are registered, so the session was
// there before we asked, and within one generation it does not come back.
func shows(sessions []SessionState, inc string) bool {
	return slices.ContainsFunc(sessions, func(s SessionState) bool { return s.Incarnation == inc })
}

// jumps reports whether more time has passed in the store between the latest
// snapshot and one that was read there at now than can have passed here
// between asking for the former and receiving the latter: both of our clocks
// stood still, or the store's stepped ahead. Either way the session ends sooner
// than the lease tells. A poll's worth of difference is taken for drift.
func (m *Machine) jumps(now time.Duration) bool {
	return m.observed && now-m.snapshot.Now > m.now.Mono-m.asked+m.pollEvery
}

// prune forgets the incarnations that nothing depends on any more, once there
// are many.
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

// takeSessions notes which peers are alive in a snapshot asked for at asked.
func (m *Machine) takeSessions(asked time.Duration) {
	before := m.asked
	m.asked = asked
	for _, s := range m.snapshot.Sessions {
		p, ok := m.peers[s.Incarnation]
		if !ok || !p.present || p.renewals != s.Renewals {
			if !p.present {
				m.recheck = true
			}
			p = peer{present: true, renewals: s.Renewals, seen: m.now.Mono}
		}
		p.asked, p.look = asked, m.looks
		m.peers[s.Incarnation] = p
	}
	for inc, p := range m.peers {
		switch {
		case p.present && p.look != m.looks:
			m.vanish(inc, p)
		case !p.present && before < p.deadAt && asked >= p.deadAt:
			m.recheck = true
		}
	}
}

// vanish notes that a session is no longer there.
func (m *Machine) vanish(inc string, p peer) {
	from := m.now.Mono
	if p.asked >= p.seen+m.lookAfter() || !m.on(guardLook) {
		from = p.seen
	}
	p.present = false
	p.deadAt = from + m.cfg.TTL
	if !m.on(guardSilence) {
		p.deadAt = m.now.Mono
	}
	m.peers[inc] = p
	m.recheck = true
}

// missing notes that the store has no session of an incarnation, until the
// next snapshot says otherwise.
func (m *Machine) missing(inc string) {
	if p := m.peers[inc]; p.present {
		m.vanish(inc, p)
	}
}

// track begins to watch the incarnations that a partition depends on.
func (m *Machine) track(s PartitionState) {
	m.watch(s.Record.Owner)
	for _, r := range s.Residue {
		m.watch(r.Holder)
	}
}

func (m *Machine) watch(inc string) {
	if _, ok := m.peers[inc]; !ok && inc != "" {
		m.vanish(inc, peer{seen: m.now.Mono})
	}
}

// alive reports whether an incarnation had a session when we last looked.
func (m *Machine) alive(inc string) bool { return m.peers[inc].present && !m.released(inc) }

// dead reports whether an incarnation can certainly start and run nothing any
// more.
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

// provenDead reports whether others should be told that an incarnation is dead:
// whoever is to claim its partitions may not have watched it for long enough,
// having only just started.
func (m *Machine) provenDead(inc string) bool {
	return inc != "" && inc != m.me() && m.pastQuarantine() && m.dead(inc) && !m.released(inc)
}

// releaseDead releases the session of an incarnation that is certainly dead, on its
// behalf: what one worker has waited for, none has to wait for again.
func (m *Machine) releaseDead() {
	if m.deadPeer == "" || !m.ready(&m.releasePeer) {
		return
	}
	if !m.provenDead(m.deadPeer) {
		m.deadPeer = ""
		return
	}
	m.emit(Release{ID: m.begin(&m.releasePeer), Incarnation: m.deadPeer})
}

// released reports whether an incarnation gave its session up after its last
// handler had ended.
func (m *Machine) released(inc string) bool { return slices.Contains(m.snapshot.Released, inc) }
