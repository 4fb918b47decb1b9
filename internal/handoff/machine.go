package handoff

import (
	"errors"
	"fmt"
	"github.com/keyway-go/keyway/internal/records"
	"math"
	"time"
)

// Config configures the Machine of one incarnation.
type Config struct {
	Session    records.Session // of the incarnation; its Incarnation is required
	Partitions int             // of the cluster. Default 4096
	TTL        time.Duration   // of the session; required
	Settle     time.Duration   // how long a View is the same before partitions move by it. Default 300 ms
	Batch      int             // partitions that are closed at once while they move. Default 64
	Changes    int             // per Apply; more than Batch, since claims close nothing. Default 4 × Batch, and Batch while callers wait

	// Floor is the highest epoch that the process knows of from before: the
	// machine opens and writes higher ones only.
	Floor int64

	// NewCluster trusts that the first generation that the machine sees holds no data that others
	// still act on. Partitions that never had an owner are then claimed without waiting for a TTL.
	// The store's own quarantine still applies. NewCluster is for a cluster's first start, and for
	// a store whose quarantine is enough. That is so if its clock does not step, and if its
	// quarantine began when only sessions confirmed earlier could still act on another store's
	// data.
	NewCluster bool

	// ServeOnStoreLoss keeps the lease alive while the store does not answer and the View stays the
	// same. It is unsafe if the network is split: the other half may take over meanwhile.
	ServeOnStoreLoss bool
}

// CallTimeout is how long the shell lets a store call take: a fifth of the TTL.
func (c Config) CallTimeout() time.Duration { return c.TTL / 5 }

func (c Config) withDefaults() Config {
	if c.Partitions == 0 {
		c.Partitions = 4096
	}
	if c.Settle == 0 {
		c.Settle = 300 * time.Millisecond
	}
	if c.Batch == 0 {
		c.Batch = 64
	}
	if c.Changes == 0 {
		c.Changes = 4 * c.Batch
	}
	return c
}

// Machine is the ownership machine of one incarnation. One goroutine owns it and calls Step. Its
// session is in a phase and each partition in a state; the package documentation has both diagrams.
type Machine struct {
	cfg        Config
	renewEvery time.Duration
	pollEvery  time.Duration
	retryEvery time.Duration // after a call that failed
	drift      time.Duration // by which the store's clock may run ahead of ours from look to look
	off        guard         // guards that a test switched off

	now    Instant
	out    []Effect
	lastID uint64

	phase      phase
	generation string
	first      bool          // generation is the first that we saw
	quarantine time.Duration // Mono until which we claim nothing of what the generation shows
	lease      Lease
	cancelled  bool   // handlers were cancelled under this lease
	confirmed  uint64 // digest of the View when the session was last renewed
	doneAt     time.Duration

	fetch, register, renew, observe, apply, clear, clearLocks, writeLocks, release, releasePeer storeCall

	view    View
	settled time.Duration // Mono from which the View counts as settled
	leaving bool
	leaveBy bool // leave now

	snapshot records.Snapshot // the latest of this generation; without Partitions
	observed bool             // there is a snapshot
	asked    time.Duration    // when we asked for the latest, on Mono
	heard    []heard          // beats of snapshots for a TTL, the oldest first
	again    bool             // something changed while an Observe was on its way
	failed   bool             // the latest Observe, sent at observe.sent
	jumped   bool             // the store's clock from ours, since the session was last renewed
	peers    map[string]peer

	floor   int64 // what we write is higher: of the process and of gossip
	highest int64 // epoch that we know of

	parts   []partition
	in      [states]int      // partitions by their states
	recheck bool             // something changed that all partitions depend on
	fresh   map[int]struct{} // partitions that changed by themselves since the latest scan
	scanAt  time.Duration    // Mono at which something changes by itself; 0 for never
	changes []records.Change // of the apply under way
	awaited map[int]struct{} // partitions that callers wait for, until they open

	running   map[int][]records.Residue // by partition: our executions that a Closed listed
	inherited map[int][]records.Residue // by partition that we serve: residue of others
	deadPeer  string                    // incarnation to report as dead; empty for none
	clears    []clearing                // residue to remove from the store
	sent      int                       // how many of clears are in the clear under way

	listed    map[int]string   // by partition that is closed: its locks, as its Closed listed them
	frozen    map[int]struct{} // closed partitions that have frozen locks
	moves     []writtenLocks   // locks in the store that successors of ours may need, the oldest first
	movesSent int              // how many of moves are in the clearLocks under way

	queue   []records.LockWrite // writes of locks to come, without numbers
	writing []records.LockWrite // the writes under way, until they are known to be done
	number  int64               // of the latest of them
}

// partition is what the machine knows of one partition. Only setState changes its state.
type partition struct {
	state   state
	here    bool           // we served it in this generation, so its record is not one that came back from the past
	advance bool           // its tokens run low
	record  records.Record // as last read in this generation
	known   int64          // highest epoch that it ever had, as far as we know
	opened  int64          // epoch at which we opened it last
	epoch   int64          // at which we serve it, or served it last
}

// storeCall is a store storeCall of one kind: at most one is under way at a time.
type storeCall struct {
	id   uint64        // of the one under way; 0 for none
	sent Instant       // when it was asked for
	next time.Duration // Mono from which the next may be sent
}

// pollPercent is how many hundredths of a TTL after a look a machine looks again though nothing
// hints at a change. A renewal counts as a look, and comes before a second look is due. A lost hint
// costs one interval. A peer's renewal counts from the first look after it, so a takeover begins
// 1.11 TTL after a dead worker's last renewal, at most.
const pollPercent = 11

// New returns a machine that begins with its first Step. It returns an error
// if the configuration makes no sense.
func New(cfg Config) (*Machine, error) {
	cfg = cfg.withDefaults()
	switch {
	case cfg.Session.Incarnation == "":
		return nil, errors.New("handoff: the session has no incarnation")
	case cfg.Partitions < 1 || cfg.Batch < 1 || cfg.Changes < 1:
		return nil, fmt.Errorf("handoff: %d partitions in batches of %d and %d", cfg.Partitions, cfg.Batch, cfg.Changes)
	case cfg.Floor < 0:
		return nil, fmt.Errorf("handoff: floor %d", cfg.Floor)
	case cfg.TTL < 100 || cfg.Settle < 0:
		return nil, fmt.Errorf("handoff: TTL %v, settle time %v", cfg.TTL, cfg.Settle)
	}
	m := &Machine{
		cfg:        cfg,
		renewEvery: cfg.TTL / 5,
		pollEvery:  cfg.TTL * pollPercent / 100,
		retryEvery: cfg.TTL / 50,
		drift:      cfg.TTL / 50,
		first:      true,
		peers:      make(map[string]peer),
		parts:      make([]partition, cfg.Partitions),
		fresh:      make(map[int]struct{}),
		awaited:    make(map[int]struct{}),
		running:    make(map[int][]records.Residue),
		inherited:  make(map[int][]records.Residue),
		listed:     make(map[int]string),
		frozen:     make(map[int]struct{}),
		in:         [states]int{stateRemote: cfg.Partitions},
		floor:      cfg.Floor,
		highest:    cfg.Floor,
	}
	for p := range m.parts {
		m.parts[p].known = cfg.Floor
	}
	return m, nil
}

// Step processes an input and returns the effects that the shell must carry out, in order. Instants
// must not go back on the monotonic clock. Call Step again no later than Next says.
func (m *Machine) Step(now Instant, in Input) []Effect {
	m.now = now
	m.checkDeadlines()
	m.takeInput(in)
	m.checkDeadlines()
	m.act()
	out := m.out
	m.out = nil
	return out
}

// takeInput lets one input change what the machine knows.
func (m *Machine) takeInput(in Input) {
	switch in := in.(type) {
	case Tick:
	case View:
		m.takeView(in)
	case Changed:
		m.lookSoon()
		m.again = m.observe.id != 0
	case Hinted:
		m.takeHint(in.Hint)
	case Reply:
		m.takeReply(in)
	case Closed:
		m.takeClosed(in)
	case Finished:
		m.takeFinished(in)
	case LocksEnded:
		m.thaw(in.Partition)
	case Write:
		m.takeWrite(in)
	case SequenceLow:
		m.takeSequenceLow(in)
	case Awaited:
		if m.valid(in.Partition) && m.parts[in.Partition].state != stateServing {
			m.awaited[in.Partition] = struct{}{}
		}
	case Leave:
		m.leaving = true
		m.leaveBy = m.leaveBy || in.Now
		m.recheck = true
	}
}

// act emits the effects that are due.
func (m *Machine) act() {
	switch m.phase {
	case phaseStarting:
		if m.leaveBy {
			m.endIncarnation()
		} else {
			m.join()
		}
	case phaseLive:
		m.keepAlive()
		m.observeStore()
		m.scan()
		m.releaseDead()
		m.sweep()
		m.sweepLocks()
		m.sendWrites()
		m.finish()
	case phaseReasserting:
		m.join()
	case phaseLost:
		m.finish()
	case phaseReleasing:
		m.giveUp()
	}
}

// Next returns how long after now, at most, the machine wants its next Step.
func (m *Machine) Next(now Instant) time.Duration {
	at := time.Duration(math.MaxInt64)
	soon := func(t time.Duration) { at = min(at, t) }
	due := func(c *storeCall) {
		if c.id == 0 {
			soon(c.next)
		}
	}
	switch m.phase {
	case phaseLive:
		due(&m.renew)
		if m.observe.id == 0 {
			soon(m.nextLook())
		}
		if len(m.clears) > 0 {
			due(&m.clear)
		}
		if len(m.moves) > 0 && m.clearLocks.id == 0 {
			soon(max(m.clearLocks.next, m.moves[0].until))
		}
		if len(m.writing)+len(m.queue) > 0 {
			due(&m.writeLocks)
		}
		if m.deadPeer != "" {
			due(&m.releasePeer)
		}
		if m.stale() && m.in[stateClosing] == 0 && m.observed {
			due(&m.apply)
		}
		if m.scanAt > 0 {
			soon(m.scanAt)
		}
		if m.drained() {
			soon(now.Mono)
		}
	case phaseStarting, phaseReasserting:
		switch {
		case m.generation == "":
			due(&m.fetch)
		case m.in[stateClosing] == 0:
			due(&m.register)
		}
	case phaseReleasing:
		due(&m.release)
		soon(m.doneAt)
	}
	if m.held() {
		deadline := m.lease.Surrender
		if !m.cancelled {
			deadline = m.lease.Cancel
		}
		soon(now.Mono + min(deadline.Mono-now.Mono, deadline.Wall-now.Wall))
	}
	return max(at-now.Mono, 0)
}

// Highest returns the highest epoch that the incarnation knows: of records, of its own changes, and
// of its inputs and Config. It is a Floor for the next incarnation.
func (m *Machine) Highest() int64 { return m.highest }

func (m *Machine) me() string       { return m.cfg.Session.Incarnation }
func (m *Machine) valid(p int) bool { return p >= 0 && p < len(m.parts) }

// emit adds an effect to those of this Step.
func (m *Machine) emit(e Effect) { m.out = append(m.out, e) }

// beginCall marks a call as under way.
func (m *Machine) beginCall(c *storeCall) Call {
	m.lastID++
	c.id, c.sent = m.lastID, m.now
	return Call{ID: m.lastID, Generation: m.generation, Incarnation: m.me()}
}

// ready reports whether a call may be sent: none is under way and its time has come.
func (m *Machine) ready(c *storeCall) bool { return c.id == 0 && m.now.Mono >= c.next }

// answered ends the call if r answers it; otherwise it reports false. The
// next call may be sent after wait.
func (m *Machine) answered(c *storeCall, r Reply, wait time.Duration) bool {
	if r.ID == 0 || c.id != r.ID {
		return false
	}
	c.id, c.next = 0, m.now.Mono+wait
	return true
}

// setPhase alone writes the phase.
func (m *Machine) setPhase(to phase) {
	if !phaseNext[m.phase][to] {
		panic(fmt.Sprintf("handoff: session goes from %v to %v", m.phase, to))
	}
	m.phase = to
}

// setState alone writes the state of a partition.
func (m *Machine) setState(p int, to state) {
	part := &m.parts[p]
	if !stateNext[part.state][to] {
		panic(fmt.Sprintf("handoff: partition %d goes from %v to %v", p, part.state, to))
	}
	m.in[part.state]--
	m.in[to]++
	part.state = to
	m.fresh[p] = struct{}{}
}

// nextScan returns when to scan the partitions again even without events; 0 for never.
func (m *Machine) nextScan() time.Duration {
	var at time.Duration
	soon := func(t time.Duration) {
		if t > m.now.Mono && (at == 0 || t < at) {
			at = t
		}
	}
	soon(m.settled)
	soon(m.quarantine)
	for _, p := range m.peers {
		if !p.present {
			soon(p.deadAt)
		}
	}
	return at
}
