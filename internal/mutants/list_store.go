package main

func storeMutations() []mutation {
	return []mutation{
		{
			rule: "a lost key of the store begins a generation",
			file: "fallback/lua/ownership/prelude.lua",
			old:  `if meta[2] ~= run or present < #KEYS then`,
			new:  `if meta[2] ~= run then`,
			test: `./fallback -run '^TestConformanceEmbedded$/^TrapLostKeyIsSeenByTheFirstCall$'`,
		},
		{
			rule: "every sorted set of the store holds a member that stays",
			file: "fallback/lua/ownership/prelude.lua",
			old:  `{CHANGES, SESSIONS, RELEASED, GONE}`,
			new:  `{CHANGES, SESSIONS, GONE}`,
			test: `./fallback -run '^TestConformanceEmbedded$/^GenerationIsStable$'`,
		},
		{
			rule: "the changes of a lost key are made again from the records",
			file: "fallback/lua/ownership/prelude.lua",
			old:  `redis.call('HKEYS', PARTITIONS)`,
			new:  `{}`,
			test: `./fallback -run '^TestConformanceEmbedded$/^TrapLostKeyIsSeenByTheFirstCall$'`,
		},
		{
			rule: "the nobody of the sorted sets has no session",
			file: "fallback/lua/ownership/prelude.lua",
			old:  `return inc ~= '' and redis.call('ZSCORE', SESSIONS, inc) and true or false`,
			new:  `return redis.call('ZSCORE', SESSIONS, inc) and true or false`,
			test: `./fallback -run '^TestConformanceEmbedded$/^NoIncarnation$'`,
		},
		{
			rule: "the memory store notices a lost part",
			file: "fallback/store_memory.go",
			old:  ` || d.lost {`,
			new:  ` {`,
			test: `./gateway -run '^TestTrapStoreLosesAKey$'`,
		},
		{
			rule: "a script's first write needs no memory",
			file: "fallback/lua/ownership/prelude.lua",
			old:  `redis.call('PERSIST', META)`,
			new:  `redis.call('HSETNX', META, 'run', '')`,
			test: `./fallback -run '^TestTrapRedisIsFull$'`,
		},
		{
			rule: "a demoted master answers nothing",
			file: "fallback/lua/ownership/prelude.lua",
			old:  `redis.call('PERSIST', META)`,
			new:  ``,
			test: `./fallback -run '^TestTrapDemotedMaster$'`,
		},
		{
			rule: "the store's clock stands still where the server's is set back",
			file: "fallback/lua/ownership/prelude.lua",
			old:  `if now < latest then`,
			new:  `if false then`,
			test: `./fallback -run '^TestTrapClockSetBackAfterRegistering$'`,
		},
		{
			rule: "a renewal notes what the clock showed",
			file: "fallback/lua/ownership/prelude.lua",
			old:  `  redis.call('HSET', META, 'clock', int(now))`,
			new:  ``,
			test: `./fallback -run '^TestTrapClockSetBackAfterRegistering$'`,
		},
		{
			rule: "a quarantine notes what the clock showed",
			file: "fallback/lua/ownership/prelude.lua",
			old:  `int(quarantine), 'clock', int(now))`,
			new:  `int(quarantine))`,
			test: `./fallback -run '^TestTrapClockSetBack$'`,
		},
		{
			rule: "the memory store's clock stands still where the machine's is set back",
			file: "fallback/store_memory.go",
			old:  `if now.Before(d.clock) {`,
			new:  `if false {`,
			test: `./gateway -run '^TestTrapStoreClockSetBack$'`,
		},
	}
}
