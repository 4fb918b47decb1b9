package main

// travelMutations are of locks that travel with their partition.
func travelMutations() []mutation {
	return []mutation{
		{
			rule: "an incarnation is not released while a lock of it is left that has not moved",
			file: "ring/handoff/session.go",
			old:  ` || len(m.frozen) > 0 && m.on(guardFrozen) {`,
			new:  ` {`,
			test: `./ring/handoff -run '^TestTranscripts$/^32-'`,
		},
		{
			rule: "locks that have moved keep nobody from leaving",
			file: "ring/handoff/locks.go",
			old:  `frozen && s.Moved > m.parts[s.Partition].epoch:`,
			new:  `frozen && s.Moved > s.Record.Epoch:`,
			test: `./ring/handoff -run '^TestTranscripts$/^29-'`,
		},
		{
			rule: "locks that have moved and come back count as they come back",
			file: "ring/handoff/locks.go",
			old:  `s.Locks == "" || s.Moved <= served {`,
			new:  `s.Locks == "" || served > 0 {`,
			test: `./ring/handoff -run '^TestTranscripts$/^31-'`,
		},
		{
			rule: "locks that come by a claim are not renewed",
			file: "ring/handoff/locks.go",
			old:  `s.Moved == s.Record.Epoch || !m.on(guardRenewable)`,
			new:  `true`,
			test: `./ring/handoff -run '^TestTranscripts$/^30-'`,
		},
		{
			rule: "the store keeps locks for a TTL for successors of who has got them",
			file: "ring/handoff/locks.go",
			old:  `until := m.now.Mono + m.cfg.TTL`,
			new:  `until := m.now.Mono`,
			test: `./ring/handoff -run '^TestTranscripts$/^29-'`,
		},
		{
			rule: "who has not served a partition does not write its locks",
			file: "fallback/store/lua/apply.lua",
			old:  ` and served >= state.moved then`,
			new:  ` then`,
			test: `./fallback/store -run '^TestConformanceEmbedded$/^TrapMoveByWhoHasNotServed$'`,
		},
		{
			rule: "the memory store: who has not served a partition does not write its locks",
			file: "internal/test/memstore/ops.go",
			old:  ` && ch.Served >= p.moved {`,
			new:  ` {`,
			test: `./fallback/store -run '^TestConformanceMemory$/^TrapMoveByWhoHasNotServed$'`,
		},
		{
			rule: "locks in the store end with their generation",
			file: "fallback/store/lua/prelude.lua",
			old:  `redis.call('DEL', LOCKS, WRITTEN, WRITES, CHANGES,`,
			new:  `redis.call('DEL', WRITTEN, WRITES, CHANGES,`,
			test: `./fallback/store -run '^TestConformanceEmbedded$/^LocksEndWithTheirGeneration$'`,
		},
		{
			rule: "locks of a later move are not cleared",
			file: "fallback/store/lua/clear_locks.lua",
			old:  `loaded[p].moved == tonumber(take())`,
			new:  `take()`,
			test: `./fallback/store -run '^TestConformanceEmbedded$/^TrapLateClearOfLocks$'`,
		},
		{
			rule: "locks are told to the owner of their partition alone",
			file: "fallback/store/lua/prelude.lua",
			old:  `if inc ~= '' and from and string.sub(values[i], to + 1, to + #inc + 1) == inc .. ',' then`,
			new:  `if from then`,
			test: `./fallback/store -run '^TestConformanceEmbedded$/^LocksMove$'`,
		},
	}
}
