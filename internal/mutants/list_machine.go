package main

// machineMutations are of the ownership machine.
func machineMutations() []mutation {
	return []mutation{
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
			file: "gateway/shell.go",
			old: `		Floor:            s.highest,
`,
			new:  "",
			test: `./gateway -run '^TestTrapTokensRiseInTheNextLife'`,
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
			file: "gateway/partition.go",
			old:  `if last, exhausted := p.table.Exhausted(); exhausted {`,
			new:  `if last, exhausted := p.table.Exhausted(); false && exhausted {`,
			test: `./gateway -run '^TestAnExhaustedTableAsks$'`,
		},
		{
			rule: "members are told of higher epochs",
			file: "gateway/shell.go",
			old: `	s.announce(func(*ring.Member) {})
`,
			new:  "",
			test: `./gateway -run '^TestEpochsAreAnnouncedSeldom$'`,
		},
		{
			rule: "members are told of higher epochs once a second",
			file: "gateway/shell.go",
			old:  `if wait := tellEvery - now.Sub(s.toldAt); wait > 0 {`,
			new:  `if wait := tellEvery - now.Sub(s.toldAt); wait > tellEvery {`,
			test: `./gateway -run '^TestEpochsAreAnnouncedSeldom$'`,
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
	}
}
