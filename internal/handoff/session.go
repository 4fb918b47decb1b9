package handoff

import (
	"errors"
	"slices"
	"time"

	"github.com/keyway-go/keyway/internal/lease"
	"github.com/keyway-go/keyway/internal/records"
)

// Instant is one reading of a process's two clocks.
type Instant = lease.Instant

// Lease says how long an incarnation may continue without renewing its session.
type Lease = lease.Lease

// errDeadline is why a session is lost that could not be renewed in time.
var errDeadline = errors.New("handoff: the session was not renewed before its deadline")

// held reports whether a lease is running.
func (m *Machine) held() bool { return m.phase == phaseLive || m.phase == phaseReasserting }

// checkDeadlines compares the lease with the clocks.
func (m *Machine) checkDeadlines() {
	if !m.held() {
		return
	}
	if !m.cancelled && m.passed(m.lease.Cancel) {
		m.cancelled = true
		if m.on(guardCancel) {
			m.emit(CancelHandlers{All: true})
		}
	}
	if m.passed(m.lease.Surrender) && m.on(guardSurrender) {
		m.lose(errDeadline)
	}
}

// join fetches the generation and registers in it.
func (m *Machine) join() {
	switch {
	case m.register.id != 0 || !m.ready(&m.fetch):
	case m.generation == "":
		m.emit(FetchGeneration{m.beginCall(&m.fetch)})
	case m.in[stateClosing] == 0 && m.ready(&m.register):
		m.emit(Register{m.beginCall(&m.register), m.cfg.Session, m.holdings()})
	}
}

// holdings lists what we serve, with the residue that it waits for, and the
// keys that still run here though their partitions moved on.
func (m *Machine) holdings() []records.Holding {
	var hs []records.Holding
	for p := range m.parts {
		h := records.Holding{Partition: p, Residue: slices.Clone(m.running[p])}
		if m.parts[p].state == stateServing {
			h.Epoch, h.Residue = m.parts[p].epoch, slices.Clone(m.inherited[p])
		}
		if !m.on(guardReassert) {
			h.Residue = nil
		}
		if h.Epoch > 0 || len(h.Residue) > 0 {
			hs = append(hs, h)
		}
	}
	return hs
}

// keepAlive renews the session when that is due, or once more if the store's
// clock has jumped from ours.
func (m *Machine) keepAlive() {
	if m.ready(&m.renew) || m.jumped && m.renew.id == 0 {
		m.jumped = false
		m.emit(Renew{m.beginCall(&m.renew)})
	}
}

// takeReply passes the outcome of a call to its handler.
func (m *Machine) takeReply(r Reply) {
	switch {
	case m.answered(&m.fetch, r, m.retryEvery):
		m.takeGeneration(r)
	case m.answered(&m.register, r, m.retryEvery):
		m.takeRegister(r)
	case m.answered(&m.renew, r, m.retryEvery):
		m.takeRenew(r)
	case m.answered(&m.observe, r, m.pollEvery):
		m.takeObserve(r)
	case m.answered(&m.apply, r, 0):
		m.takeApply(r)
	case m.answered(&m.clear, r, 0):
		m.takeClear(r)
	case m.answered(&m.clearLocks, r, 0):
		m.takeClearLocks(r)
	case m.answered(&m.writeLocks, r, 0):
		m.takeWriteLocks(r)
	case m.answered(&m.releasePeer, r, m.retryEvery):
		if r.Err == nil {
			m.deadPeer = ""
		}
	case m.answered(&m.release, r, m.retryEvery):
		if r.Err == nil {
			m.setPhase(phaseReleased)
			m.emit(Done{})
		}
	}
}

// refused acts on an error that says something definite about the session,
// and reports whether there was one.
func (m *Machine) refused(err error) bool {
	switch {
	case errors.Is(err, records.ErrSessionGone):
		m.lose(err)
	case errors.Is(err, records.ErrGeneration):
		m.reassert()
	default:
		return false
	}
	return true
}

func (m *Machine) takeGeneration(r Reply) {
	if r.Err != nil {
		return
	}
	m.fetch.next = 0
	m.generation = r.Generation
	m.learn(r.Generation)
}

// learn records that the store's data is of a generation that we have not seen: for a TTL its
// records may be older than the data that others act on.
func (m *Machine) learn(generation string) {
	if m.snapshot.Generation == generation {
		return
	}
	m.first = m.snapshot.Generation == ""
	m.snapshot = records.Snapshot{Generation: generation}
	m.quarantine = m.now.Mono + m.cfg.TTL
	if m.first && m.cfg.NewCluster {
		m.quarantine = m.now.Mono
	}
	m.observed = false
	m.heard = nil
	clear(m.peers)
	for p := range m.parts {
		m.parts[p].record = records.Record{}
		m.parts[p].here = false
	}
}

func (m *Machine) takeRegister(r Reply) {
	if r.Err != nil {
		if errors.Is(r.Err, records.ErrGeneration) {
			m.generation = ""
		} else {
			m.refused(r.Err)
		}
		return
	}
	m.setPhase(phaseLive)
	m.extend(m.register.sent)
	m.renew.next = m.register.sent.Mono + m.renewEvery
	m.observe.next = 0
	for _, s := range r.States {
		if m.valid(s.Partition) && m.parts[s.Partition].state == stateServing && s.Record.Owner == m.me() {
			m.parts[s.Partition].here = true
		}
	}
	m.takeStates(r.States)
	if m.on(guardForgotten) {
		m.emit(LocksForgotten{})
	}
}

func (m *Machine) takeRenew(r Reply) {
	if r.Err == nil {
		m.renew.next = m.renew.sent.Mono + m.renewEvery
		m.extend(m.renew.sent)
		m.takeRenewed(r.Snapshot)
		return
	}
	if !m.refused(r.Err) && m.cfg.ServeOnStoreLoss && m.view.Digest == m.confirmed {
		m.extend(m.renew.sent)
	}
}

// extend starts the lease anew from the moment before its call was sent.
func (m *Machine) extend(sent Instant) {
	if !m.on(guardClockBefore) {
		sent = m.now
	}
	m.lease = lease.New(sent, m.cfg.TTL)
	m.cancelled = false
	m.confirmed = m.view.Digest
	m.emit(LeaseChanged{m.lease})
}

// reassert begins to register in the store's new generation while the lease continues. Calls under
// way belong to the old generation, and their outcome is unknown. They therefore open no partition
// that was being moved or claimed.
func (m *Machine) reassert() {
	if m.phase != phaseLive {
		return
	}
	m.setPhase(phaseReasserting)
	m.generation = ""
	m.forget()
}

// forget drops every call under way.
func (m *Machine) forget() {
	for _, c := range []*storeCall{&m.fetch, &m.register, &m.renew, &m.observe, &m.apply, &m.clear, &m.clearLocks, &m.writeLocks, &m.releasePeer} {
		*c = storeCall{}
	}
	m.failed = false
	m.jumped = false
	m.sent = 0
	m.moves, m.movesSent = nil, 0 // they end with their generation
	m.changes = nil
	m.queue, m.writing = nil, nil // in another generation all is asked for again
	m.deadPeer = ""
	for p := range m.parts {
		switch m.parts[p].state {
		case stateClaiming, stateParked, stateMoving:
			m.setState(p, stateRemote)
		}
	}
}

// lose ends the incarnation: nothing of it may start any more.
func (m *Machine) lose(err error) {
	m.setPhase(phaseLost)
	m.lease = Lease{}
	m.forget()
	m.emit(LeaseChanged{})
	for p := range m.parts {
		if m.parts[p].state == stateServing {
			m.close(p)
		}
	}
	m.emit(CancelHandlers{All: true})
	m.emit(Lost{Err: err})
}

// finish releases the session once nothing of this incarnation is left: its
// successors then need not wait until it would have expired.
func (m *Machine) finish() {
	if m.drained() {
		m.endIncarnation()
	}
}

// endIncarnation gives up for good. A lost incarnation says nothing of its lease again,
// for its successor may have one by now.
func (m *Machine) endIncarnation() {
	if m.lease != (Lease{}) {
		m.lease = Lease{}
		m.emit(LeaseChanged{})
	}
	m.forget()
	m.setPhase(phaseReleasing)
	m.giveUp()
}

// drained reports whether we are lost or leaving, no handler of ours runs or can start, and all our
// locks have moved or ended.
func (m *Machine) drained() bool {
	if m.in[stateServing]+m.in[stateClosing] > 0 || len(m.running) > 0 && m.on(guardDrain) || len(m.frozen) > 0 && m.on(guardFrozen) {
		return false
	}
	return m.phase == phaseLost || m.phase == phaseLive && m.leaving && m.in[stateClaiming]+m.in[stateMoving] == 0 && len(m.clears) == 0 && m.unclaimed()
}

// giveUp releases the session. After a TTL it has expired by itself.
func (m *Machine) giveUp() {
	if m.doneAt == 0 {
		m.doneAt = m.now.Mono + m.cfg.TTL
	}
	switch {
	case m.now.Mono >= m.doneAt:
		m.release = storeCall{}
		m.setPhase(phaseReleased)
		m.emit(Done{})
	case m.ready(&m.release):
		m.emit(Release{m.beginCall(&m.release)})
	}
}

// passed reports whether a deadline of the lease has passed: on either clock.
func (m *Machine) passed(deadline Instant) bool {
	if !m.on(guardEitherClock) {
		return m.now.Mono >= deadline.Mono
	}
	return deadline.Passed(m.now)
}

// over reports whether a waiting period has ended. Periods that keep us from taking something run
// on the monotonic clock alone: it may stand still, but it never runs ahead.
func (m *Machine) over(at time.Duration) bool { return m.now.Mono >= at }
