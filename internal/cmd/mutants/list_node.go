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
	}
}
