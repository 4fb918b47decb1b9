package main

// settingsMutations are of the settings that all members share.
func settingsMutations() []mutation {
	return []mutation{
		{
			rule: "a worker that joins begins nothing while active ones use another store",
			file: "gateway/agreement.go",
			old:  `len(refused) > 0 && !l.confirmed`,
			new:  `len(refused) > 0 && false`,
			test: "./gateway -run '^TestTrapTwoStores$'",
		},
		{
			rule: "a worker announces the identity of its store",
			file: "gateway/agreement.go",
			old:  `self.StoreID = store })`,
			new:  `_ = store })`,
			test: "./gateway -run '^TestTrapTwoStores$'",
		},
		{
			rule: "members that use another store are in no view",
			file: "ring/view.go",
			old:  `if m.StoreID != 0 && store != 0 && m.StoreID != store {`,
			new:  `if false && m.StoreID != store {`,
			test: "./gateway -run '^TestTrapTwoStores$'",
		},
		{
			rule: "active workers of the younger store stop",
			file: "gateway/agreement.go",
			old:  `if s.current.confirmed && m.StoreID < s.current.store {`,
			new:  `if false && m.StoreID < s.current.store {`,
			test: "./gateway -run '^TestTrapTwoStoresMeet$'",
		},
		{
			rule: "an active worker without a session in the store is noticed",
			file: "gateway/agreement.go",
			old:  `return ok && now.Sub(since) >= max(ttl, detection)`,
			new:  `return ok && now.Sub(since) >= 1000*max(ttl, detection)`,
			test: "./gateway -run '^TestTrapCopiedStore$'",
		},
		{
			rule: "an incarnation takes nothing along into another store",
			file: "gateway/shell.go",
			old:  `if l.astray {`,
			new:  `if false {`,
			test: "./gateway -run '^TestTrapStoreBecomesAnother$'",
		},
		{
			rule: "a store opened with other settings than the members' is refused",
			file: "gateway/worker.go",
			old:  `settings.Compare(cfg.Store.Settings()); differ {`,
			new:  `settings.Compare(cfg.Store.Settings()); differ && d.Setting == "" {`,
			test: "./gateway -run '^TestTrapStoreOfOtherSettings$'",
		},
		{
			rule: "the store refuses settings other than those of its live sessions",
			file: "fallback/lua/ownership/prelude.lua",
			old:  `if SETTINGS == settings then`,
			new:  `if true then`,
			test: "./fallback -run '^TestConformanceEmbedded$/^TrapOtherSettingsThanLiveSessions$'",
		},
		{
			rule: "members with different session TTLs refuse each other",
			file: "ring/settings.go",
			old:  `case s.TTL != t.TTL:`,
			new:  `case false:`,
			test: "./ring/gossip -run '^TestRefusals$/^session_TTL$'",
		},
		{
			rule: "the ends of a link use one store",
			file: "internal/link/conn.go",
			old:  `case peer.store != 0 && mine.store != 0 && peer.store != mine.store:`,
			new:  `case false:`,
			test: "./internal/link -run '^TestMismatch$/^store$'",
		},
		{
			rule: "a worker takes nothing more over a link once its store is another one than the router's",
			file: "internal/link/serverconn.go",
			old:  `sc.tick = sc.recheck`,
			new:  `sc.tick = nil`,
			test: "./internal/link -run '^TestStoreBecomesAnother$'",
		},
		{
			rule: "a worker tells its links which store it uses",
			file: "gateway/server.go",
			old:  `Store: store, MaxHeaderBytes`,
			new:  `Store: func() uint64 { _ = store; return 0 }, MaxHeaderBytes`,
			test: "./gateway -run '^TestLinkRefusesOtherStore$'",
		},
		{
			rule: "a member without a store says that it sees workers of several",
			file: "ring/gossip/owner.go",
			old:  `ours.Store == 0 && len(workers) > 0`,
			new:  `false && len(workers) > 0`,
			test: "./ring/gossip -run '^TestSeveralStoresAreNoticed$'",
		},
		{
			rule: "members that use another store are kept out over gossip",
			file: "ring/view.go",
			old:  `store != 0 && m.StoreID != store {`,
			new:  `store != 0 && false {`,
			test: "./ring/gossip -run '^TestTwoStoresStayApart$'",
		},
	}
}
