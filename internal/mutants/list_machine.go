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
	}
}
