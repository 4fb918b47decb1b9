package main

// machineMutations are of the ownership machine.
func machineMutations() []mutation {
	return []mutation{
		{
			rule: "a snapshot without our own session means that it is gone",
			file: "ring/handoff/peers.go",
			old:  "		m.lose(ErrSessionGone)\n		return\n",
			new:  "",
			test: `./ring/handoff -run '^TestGoneFromASnapshot$'`,
		},
		{
			rule: "a session is renewed at once when the store's clock jumps from ours",
			file: "ring/handoff/session.go",
			old:  ` || m.jumped && m.renew.id == 0 {`,
			new:  ` {`,
			test: `./ring/handoff -run '^TestJumpRenewsAtOnce$'`,
		},
		{
			rule: "a jump that comes while a renewal is under way is not forgotten",
			file: "ring/handoff/session.go",
			old:  `	if m.ready(&m.renew) || m.jumped && m.renew.id == 0 {`,
			new: `	jumped := m.jumped
	m.jumped = false
	if m.ready(&m.renew) || jumped && m.renew.id == 0 {`,
			test: `./ring/handoff -run '^TestJumpDuringARenewal$'`,
		},
		{
			rule: "a peer is dead only if a snapshot asked for after its deadline does not show it",
			file: "ring/handoff/peers.go",
			old:  `at := m.asked`,
			new:  `at := m.now.Mono`,
			test: `./ring/handoff -run '^TestAbsentPeer'`,
		},
		{
			rule: "what waits for a peer to be dead is looked at again by that snapshot",
			file: "ring/handoff/peers.go",
			old:  `case !p.present && before < p.deadAt && asked >= p.deadAt:`,
			new:  `case before > asked:`,
			test: `./ring/handoff -run '^TestAbsentPeer'`,
		},
		{
			rule: "a new life's machine begins above the epochs of the process",
			file: "gateway/worker/shell.go",
			old: `		Floor:            s.highest,
`,
			new:  "",
			test: `./gateway/worker -run '^TestTrapTokensRiseInTheNextLife'`,
		},
		{
			rule: "a machine writes above the epochs that gossip tells of",
			file: "ring/handoff/partition.go",
			old:  `m.floor = max(m.floor, v.Floor)`,
			new:  `_ = v.Floor`,
			test: `./ring/handoff -run '^TestFloor$'`,
		},
		{
			rule: "a machine opens above the floor that it begins with",
			file: "ring/handoff/machine.go",
			old:  `m.parts[p].known = cfg.Floor`,
			new:  `m.parts[p].known = 0`,
			test: `./ring/handoff -run '^TestFloor$'`,
		},
		{
			rule: "each move sent raises what is known of its partition",
			file: "ring/handoff/partition.go",
			old:  `part.known = epoch`,
			new:  `part.known = max(part.known, part.record.Epoch+1) + 0*epoch`,
			test: `./ring/handoff -run '^TestEveryMoveSentCounts$'`,
		},
		{
			rule: "a partition's next epoch is above that of the tokens it has given",
			file: "ring/handoff/partition.go",
			old:  `part.known = max(part.known, in.Epoch)`,
			new:  `_ = in.Epoch`,
			test: `./ring/handoff -run '^TestSequenceBeyondTheEpoch$'`,
		},
		{
			rule: "an exhausted table asks for an epoch",
			file: "gateway/worker/partition.go",
			old:  `if last, exhausted := p.table.Exhausted(); exhausted {`,
			new:  `if last, exhausted := p.table.Exhausted(); false && exhausted {`,
			test: `./gateway/worker -run '^TestAnExhaustedTableAsks$'`,
		},
		{
			rule: "members are told of higher epochs",
			file: "gateway/worker/shell.go",
			old: `	s.announce(func(*ring.Member) {})
`,
			new:  "",
			test: `./gateway/worker -run '^TestEpochsAreAnnouncedSeldom$'`,
		},
		{
			rule: "members are told of higher epochs once a second",
			file: "gateway/worker/shell.go",
			old:  `if wait := tellEvery - now.Sub(s.toldAt); wait > 0 {`,
			new:  `if wait := tellEvery - now.Sub(s.toldAt); wait > tellEvery {`,
			test: `./gateway/worker -run '^TestEpochsAreAnnouncedSeldom$'`,
		},
		{
			rule: "the highest epoch is kept when the member that told of it has gone",
			file: "ring/gossip/owner.go",
			old: `		o.self.Epoch = o.epoch
`,
			new:  "",
			test: `./ring/gossip -run '^TestTheHighestEpochIsKept$'`,
		},
		{
			rule: "a member's epoch is bounded",
			file: "ring/gossip/meta.go",
			old:  `case md.epoch < 0 || md.epoch > epochLimit:`,
			new:  `case md.epoch == epochLimit:`,
			test: `./ring/gossip -run '^TestStrangersMetadata$'`,
		},
		{
			rule: "reads that fail wait",
			file: "ring/handoff/peers.go",
			old:  `if at := m.lookAt(); !m.failed || at > m.observe.sent.Mono {`,
			new:  `if at := m.lookAt(); true {`,
			test: `./ring/handoff -run '^TestReadsThatFailAreSpaced$'`,
		},
		{
			rule: "a moment at which partitions are looked at again is not waited for once it has passed",
			file: "ring/handoff/partition.go",
			old:  `m.recheck, m.scanAt = true, 0`,
			new:  `m.recheck = true`,
			test: `./ring/handoff -run '^TestAWaitForAChangeIsNoSpin$'`,
		},
		{
			rule: "a look at a certain time does not wait for one that failed",
			file: "ring/handoff/peers.go",
			old:  `if at := m.lookAt(); !m.failed || at > m.observe.sent.Mono {`,
			new:  `if at := m.lookAt(); !m.failed {`,
			test: `./ring/handoff -run '^TestALookIsNotDelayedByOnesThatFailed$'`,
		},
		{
			rule: "handlers are cancelled under each lease, not only the first that runs out",
			file: "ring/handoff/session.go",
			old: `	m.cancelled = false
`,
			new:  ``,
			test: `./ring/handoff -run '^TestEveryLeaseCancels$'`,
		},
		{
			rule: "the lease runs from before the registration was sent",
			file: "ring/handoff/session.go",
			old:  `m.extend(m.register.sent)`,
			new:  `m.extend(m.now)`,
			test: `./ring/handoff -run '^TestTheLeaseRunsFromBeforeItsRegistration$'`,
		},
		{
			rule: "an execution's end reaches the life that it began in",
			file: "gateway/worker/partition.go",
			old:  `p.worker.shell.post(nil, handoff.Finished{`,
			new:  `p.worker.shell.post(p.worker.shell.current, handoff.Finished{`,
			test: `./gateway/worker -run '^TestTheLifeBeforeIsReleasedWithItsLastExecution$'`,
		},
		{
			rule: "a partition that a lost incarnation had is closed",
			file: "ring/handoff/session.go",
			old: `		if m.parts[p].state == stateServing {
			m.close(p)
`,
			new: `		if m.parts[p].state == stateServing {
			m.setState(p, stateClosing)
`,
			test: `./ring/handoff -run '^TestTranscripts$'`,
		},
		{
			rule: "a closed table opens at a higher epoch only",
			file: "ring/handoff/partition.go",
			old:  `m.takeOurs(s, s.Record.Epoch > known || !m.on(guardFence))`,
			new:  `m.takeOurs(s, known >= 0)`,
			test: `./ring/handoff -run '^TestExplore$' -scope store_restarts_in_a_move`,
		},
		{
			rule: "nothing is released while a handler runs",
			file: "ring/handoff/session.go",
			old:  `len(m.running) > 0 && m.on(guardDrain)`,
			new:  `len(m.running) > 0 && false`,
			test: `./ring/handoff -run '^TestTranscripts$'`,
		},
		{
			rule: "residue of others blocks its keys",
			file: "ring/handoff/residue.go",
			old:  `if r.Holder == m.me() || !m.on(guardResidue) {`,
			new:  `if r.Holder != m.me() || !m.on(guardResidue) {`,
			test: `./ring/handoff -run '^TestTranscripts$'`,
		},
		{
			rule: "a new generation begins a quarantine",
			file: "ring/handoff/session.go",
			old:  `m.quarantine = m.now.Mono + m.cfg.TTL`,
			new:  `m.quarantine = m.now.Mono`,
			test: `./ring/handoff -run '^TestExplore$' -scope lost_writes,_store`,
		},
		{
			rule: "partitions move to workers that see the same ring",
			file: "ring/handoff/partition.go",
			old:  `return w.View == m.view.Digest`,
			new:  `return true`,
			test: `./ring/handoff -run '^TestExplore$' -scope crash_in_a_move`,
		},
		{
			rule: "partitions move when the view has settled",
			file: "ring/handoff/partition.go",
			old:  `m.settled = m.now.Mono + m.cfg.Settle`,
			new:  `m.settled = m.now.Mono`,
			test: `./ring/handoff -run '^TestTranscripts$'`,
		},
		{
			rule: "residue is cleared when its handler has returned",
			file: "ring/handoff/residue.go",
			old: `	m.put(m.running, in.Partition, slices.Delete(m.running[in.Partition], i, i+1))
	m.clearLater(in.Partition, r)
`,
			new: `	m.put(m.running, in.Partition, slices.Delete(m.running[in.Partition], i, i+1))
`,
			test: `./ring/handoff -run '^TestTranscripts$'`,
		},
		{
			rule: "what runs is registered again",
			file: "ring/handoff/session.go",
			old:  `hs = append(hs, Holding{Partition: p, Residue: slices.Clone(r)})`,
			new:  `_ = r`,
			test: `./ring/handoff -run '^TestTranscripts$'`,
		},
		{
			rule: "a session that vanished early was perhaps renewed",
			file: "ring/handoff/peers.go",
			old:  `if p.asked >= p.seen+m.lookAfter() || !m.on(guardLook) {`,
			new:  `if true {`,
			test: `./ring/handoff -run '^TestTranscripts$'`,
		},
		{
			rule: "the session is lost at its deadline",
			file: "ring/handoff/session.go",
			old:  `if m.passed(m.lease.Surrender) && m.on(guardSurrender) {`,
			new:  `if false {`,
			test: `./ring/handoff -run '^TestTranscripts$'`,
		},
		{
			rule: "an incarnation has ended before others may take over",
			file: "ring/lease/lease.go",
			old:  `surrenderPercent = 95`,
			new:  `surrenderPercent = 100`,
			test: `./ring/lease -run '^TestNew$'`,
		},
		{
			rule: "a deadline passes on either clock",
			file: "ring/lease/lease.go",
			old:  `return now.Mono >= i.Mono || now.Wall >= i.Wall`,
			new:  `return now.Mono >= i.Mono`,
			test: `./ring/lease -run '^TestInstantPassesOnEitherClock$'`,
		},
	}
}
