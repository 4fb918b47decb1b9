package main

func nodeMutations() []mutation {
	return []mutation{
		{
			rule: "a store is named by who uses it, not by who begins it",
			file: "fallback/store/lua/prelude.lua",
			old:  `if not identity and IDENTITY ~= '' then`,
			new:  `if not identity then`,
			test: `./fallback/store -run '^TestTrapBegunStoreHasNoIdentity$'`,
		},
		{
			rule: "NewCluster skips the quarantine of a store that was only begun if it holds no records",
			file: "fallback/store/lua/prelude.lua",
			old:  ` and redis.call('HLEN', PARTITIONS) == 1 then`,
			new:  ` then`,
			test: `./fallback/store -run '^TestNewClusterOnABegunStore$'`,
		},
		{
			rule: "the quarantine of a store counts from when it was begun",
			file: "fallback/store/ops.go",
			old:  `	_, err := s.runAs(ctx, s.client, "", "generation", "")`,
			new:  `	err := ctx.Err()`,
			test: `./fallback/store -run '^TestTrapQuarantineCountsFromTheBeginning$'`,
		},
		{
			rule: "the clock of an embedded store is not set",
			file: "fallback/store/embedded.go",
			old:  `answer(newRunID(), steadyClock())`,
			new:  `answer(newRunID(), nil)`,
			test: `./fallback/store -run '^TestEmbeddedClockIsSteady$'`,
		},
		{
			rule: "one address of a machine has the store: who does not get it keeps none",
			file: "internal/offered/host.go",
			old:  `		Bind:     h.cfg.Addr,`,
			new:  `		Bind:     "127.0.0.1:0",`,
			test: `./ -run '^TestTrapStartedAtOnce$'`,
		},
		{
			rule: "a store in memory is for one machine",
			file: "config.go",
			old:  `c.Offered || !c.oneMachine() || `,
			new:  `c.Offered || `,
			test: `./ -run '^TestTrapNoStoreInMemoryForManyMachines$'`,
		},
		{
			rule: "another node keeps the store when the one that did has ended",
			file: "internal/offered/host.go",
			old:  `	if !hosts {`,
			new:  `	if false && !hosts {`,
			test: `./ -run '^TestAnotherNodeKeepsTheStore$'`,
		},
		{
			rule: "of two stores at one gossip address one has ended: that is no mistake",
			file: "internal/offered/offered.go",
			old:  `if m.Store != "" && !slices.Contains(at, m.Gossip) {`,
			new:  `if m.Store != "" {`,
			test: `./internal/offered -run '^TestStoresAtOneAddress$'`,
		},
		{
			rule: "a store that was begun long before needs no quarantine of who comes to it",
			file: "start.go",
			old:  `n.cfg.NewCluster || n.cfg.Redis == ""`,
			new:  `n.cfg.NewCluster`,
			test: `./ -run '^TestServesAtOnceWhereAStoreHasBegun$'`,
		},
		{
			rule: "a router offers no store beside the one that it joins",
			file: "cmd/router/join.go",
			old:  `cfg.Self.Store, cfg.Bind, cfg.Seeds = "", "127.0.0.1:0",`,
			new:  `cfg.Bind, cfg.Seeds = "127.0.0.1:0",`,
			test: `./cmd/router -run '^TestJoinsWhoKeepsTheStore$'`,
		},
		{
			rule: "a node takes no requests before it has a handler",
			file: "start.go",
			old:  `newHandler(n.worker.Unavailable())`,
			new:  `newHandler(n.worker.Handler(nil))`,
			test: `./ -run '^TestServe$'`,
		},
		{
			rule: "a node ends what runs, whatever has become of its program's context",
			file: "start.go",
			old:  "err := n.Drain(context.Background())",
			new:  "var err error",
			test: "./ -run '^TestNodeEndsItsExecutions$'",
		},
	}
}
