package main

import "fmt"

// writtenMutations are of locks that the store keeps.
func writtenMutations() []mutation {
	const (
		first   = "./gateway/worker -run '^TestTrapLongLocksAreWrittenFirst$'"
		moves   = "./gateway/worker -run '^TestLongLocksMove$'"
		life    = "./gateway/worker -run '^TestLongLocksOutliveALife$'"
		overrun = "./gateway/worker -run '^TestTrapLocksComeBesideAnOverrun$'"
		share   = "./gateway/worker -run '^TestTrapStoreWaitersHaveAShare$'"
		fits    = "./gateway/worker -run '^TestTrapWaitersBecomeNoMoreLocksThanMove$'"
		unlock  = "./gateway/router -run '^TestTrapUnlockOfALongLockThatMoves$'"
		redis   = "./fallback/store -run '^TestConformanceEmbedded$/^%s$'"
		memory  = "./fallback/store -run '^TestConformanceMemory$/^%s$'"
	)
	return []mutation{
		{
			rule: "a long lease is granted when the store keeps the lock",
			file: "gateway/worker/locks_extend.go",
			old:  "case l.stored < e.Lease && (e.Lease > ls.worker.settings.TTL ||",
			new:  "case l.stored < e.Lease && (false ||",
			test: "./gateway/worker -run '^TestTrapLongLocksOutliveTheirOwner$'",
		},
		{
			rule: "a holder that does not renew is promised no more than the session vouches for, unless the store keeps its lock",
			file: "gateway/worker/locks_extend.go",
			old:  " || e.Firm && e.Lease > promise.Surrender):",
			new:  "):",
			test: first,
		},
		{
			rule: "the key of a long lock is free when the store does not keep it any more",
			file: "gateway/worker/locks_written.go",
			old:  "	if l.stored == 0 && l.write == nil {",
			new:  "	if true {",
			test: first,
		},
		{
			rule: "the release of a long lock is answered when it is made",
			file: "gateway/worker/locks_calls.go",
			old:  "removal == nil || removal.await(ctx)",
			new:  "removal == nil || true",
			test: first,
		},
		{
			rule: "a long lock outlives the session of its owner",
			file: "gateway/worker/locks_move.go",
			old:  "	for _, l := range p.takeWrittenLocked(e, listed) {",
			new:  "	for _, l := range listed {",
			test: life,
		},
		{
			rule: "nobody waits for a long lock to release a session",
			file: "gateway/worker/locks_move.go",
			old:  "	p.dropWrittenLocked()\n",
			new:  "",
			test: "./gateway/worker -run '^TestTrapLongLocksKeepNobodyFromLeaving$'",
		},
		{
			rule: "what is left of a long lock moves along",
			file: "gateway/worker/locks_written.go",
			old:  "			l.expires, l.lease, l.call = move.expires, move.lease, move.call\n",
			new:  "",
			test: moves,
		},
		{
			rule: "a lock that has moved keeps its key from others",
			file: "gateway/worker/locks_move.go",
			old:  "p.table.Install([]localmutex.Held{{Key: l.key, Token: l.token, Shared: l.shared}})",
			new:  "p.table.Install([]localmutex.Held(nil))",
			test: moves,
		},
		{
			rule: "a lock that comes to where an execution overruns is a lock as any other",
			file: "localmutex/remote.go",
			old:  "e.listed && (!e.remote || e.sharers > 0) &&",
			new:  "e.listed && (e.remote && e.sharers == 0) &&",
			test: overrun,
		},
		{
			rule: "an execution that overruns frees no lock's key",
			file: "localmutex/table.go",
			old:  "	if len(t.heirs) > 0 {",
			new:  "	if false {",
			test: overrun,
		},
		{
			rule: "a lock that comes to where an execution overruns holds its key",
			file: "gateway/worker/locks_move.go",
			old:  "	if holder > l.token {",
			new:  "	if holder != 0 {",
			test: overrun,
		},
		{
			rule: "of a long lock that is being removed nothing is left",
			file: "gateway/worker/locks_text.go",
			old:  "		if l.end != lockGranted {",
			new:  "		if false {",
			test: moves,
		},
		{
			rule: "who releases a long lock while it moves is told that it was his",
			file: "gateway/worker/locks_calls.go",
			old:  "			states[i] = holds.Released\n",
			new:  "			states[i] = holds.Elsewhere\n",
			test: unlock,
		},
		{
			rule: "a client knows of a long lock that moves that it has released it",
			file: "gateway/router/holds_follow.go",
			old:  "	l.released = l.released || state == holds.Released\n",
			new:  "",
			test: unlock,
		},
		{
			rule: "the lock service knows of a long lock that moves that it has released it",
			file: "gateway/router/lockapi_calls.go",
			old:  "			released = true\n",
			new:  "			released = false\n",
			test: unlock,
		},
		{
			rule: "long locks are written again where the store has lost them",
			file: "gateway/worker/effects.go",
			old:  "			w.parts[i].writeLocksAgain()\n",
			new:  "			_ = i\n",
			test: "./gateway/worker -run '^TestTrapLongLocksAreWrittenAgain$'",
		},
		{
			rule: "who may have lost his session promises nothing of a long lock",
			file: "gateway/worker/locks_extend.go",
			old:  "	case promise.Surrender == 0:",
			new:  "	case promise.Surrender < 0:",
			test: "./gateway/worker -run '^TestTrapLongLocksNeedASession$'",
		},
		{
			rule: "the store vouches for no longer lease than it keeps",
			file: "gateway/worker/locks_extend.go",
			old:  "case l.stored >= e.Lease || e.Firm:",
			new:  "case l.stored > 0 || e.Firm:",
			test: "./gateway/worker -run '^TestTrapWrittenLeaseIsShorter$'",
		},
		{
			rule: "how many locks the store keeps is counted as they go",
			file: "gateway/worker/locks.go",
			old:  "	ls.written.Add(-int64(number(l.stored > 0)))\n",
			new:  "",
			test: "./gateway/worker -run '^TestWrittenLocksAreCounted$'",
		},
		{
			rule: "calls that wait for the store take of the share of those that wait",
			file: "gateway/worker/locks_extend.go",
			old:  "		if !r.BeginWait() {\n			return holds.Grant{}, errLinkFull",
			new:  "		if !r.BeginWait() && false {\n			return holds.Grant{}, errLinkFull",
			test: share,
		},
		{
			rule: "releases that wait for the store take of the share of those that wait",
			file: "gateway/worker/locks_calls.go",
			old:  "		if !r.BeginWait() {\n			return nil, errLinkFull",
			new:  "		if !r.BeginWait() && false {\n			return nil, errLinkFull",
			test: share,
		},
		{
			rule: "those who wait become no more locks than can move",
			file: "gateway/worker/locks_calls.go",
			old:  "full := err == nil && !t.fits(l.size())",
			new:  "full := false",
			test: fits,
		},
		{
			rule: "leases are bounded",
			file: "gateway/worker/locks_calls.go",
			old:  "; lease > most {",
			new:  "; lease > 2*most {",
			test: "./gateway/worker -run '^TestMaxLease$'",
		},
		{
			rule: "the store writes locks for the owner of their partition alone",
			file: "fallback/store/lua/write_locks.lua",
			old:  "state.owner == inc and ",
			new:  "",
			test: fmt.Sprintf(redis, "TrapWriteByAnother"),
		},
		{
			rule: "the store writes locks at the epoch of their partition alone",
			file: "fallback/store/lua/write_locks.lua",
			old:  "state.epoch == tonumber(epoch) and ",
			new:  "",
			test: fmt.Sprintf(redis, "TrapWriteByAnother"),
		},
		{
			rule: "written locks in the store end with their generation",
			file: "fallback/store/lua/prelude.lua",
			old:  "redis.call('DEL', LOCKS, WRITTEN, WRITES, CHANGES,",
			new:  "redis.call('DEL', LOCKS, WRITES, CHANGES,",
			test: fmt.Sprintf(redis, "WrittenLocksEndWithTheirGeneration"),
		},
		{
			rule: "the memory store: written locks end with their generation",
			file: "internal/test/memstore/memstore.go",
			old:  "p.locks, p.written, p.wrote = \"\", nil, handoff.WriteNumber{}",
			new:  "p.locks, p.wrote = \"\", handoff.WriteNumber{}",
			test: fmt.Sprintf(memory, "WrittenLocksEndWithTheirGeneration"),
		},
		{
			rule: "a write of locks that is late changes nothing",
			file: "fallback/store/lua/write_locks.lua",
			old:  " and later",
			new:  "",
			test: fmt.Sprintf(redis, "TrapLateWrite"),
		},
		{
			rule: "the memory store: locks are written for the owner of their partition alone, at its epoch",
			file: "internal/test/memstore/ops.go",
			old:  "			if later && p.record == (handoff.Record{Epoch: w.Number.Epoch, Owner: incarnation}) {",
			new:  "			if later {",
			test: fmt.Sprintf(memory, "TrapWriteByAnother"),
		},
		{
			rule: "the memory store: a write of locks that is late changes nothing",
			file: "internal/test/memstore/ops.go",
			old:  "			if later && p.record",
			new:  "			if (later || true) && p.record",
			test: fmt.Sprintf(memory, "TrapLateWrite"),
		},
	}
}
