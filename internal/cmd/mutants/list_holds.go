package main

// holdsMutations are about calls between members, and the keys that are held by
// them.
func holdsMutations() []mutation {
	const (
		calls   = "./internal/wire/link -run '^TestCalls$'"
		clients = "./gateway/router -run '^TestTrapNoClientMakesACall$'"
		lease   = "./gateway/router -run '^TestTrapHoldEndsBeforeItsLease$'"
		dead    = "./gateway/router -run '^TestTrapHoldOfTheDeadEnds$'"
		refused = "./gateway/worker -run '^TestCallsAreRefused$'"
		promise = "./gateway/worker -run '^TestTrapPromisesEndWithTheLease$'"
		repeats = "./gateway/worker -run '^TestCallsMayBeRepeated$'"
		moves   = "./gateway/worker -run '^TestTrapLocksMove$'"
		follows = "./gateway/router -run '^TestTrapHoldsMove$'"
		shared  = "./gateway/worker -run '^TestSharedLocks$'"
		joined  = "./gateway/worker -run '^TestTrapNobodyJoinsLostLocks$'"
		noted   = "./gateway/worker -run '^TestTrapHoldsAreNoted$'"
	)
	return []mutation{
		{
			rule: "who asks for a shared lock does not pass those who wait",
			file: "gateway/worker/locks_shared.go",
			old:  "!t.open || p.table.Queued(l.key) > 0 ||",
			new:  "!t.open ||",
			test: shared,
		},
		{
			rule: "the last of those that share a key frees it",
			file: "gateway/worker/locks.go",
			old:  "if !l.shared || t.leaveLocked(l) {",
			new:  "if !l.shared || t.leaveLocked(l) || l.shared {",
			test: shared,
		},
		{
			rule: "nobody joins shared locks that only block their key",
			file: "gateway/worker/locks_shared.go",
			old:  "if s == nil || s.blocks ||",
			new:  "if s == nil ||",
			test: joined,
		},
		{
			rule: "nobody joins shared locks of a life before",
			file: "gateway/worker/locks_shared.go",
			old:  " || s.cancels != p.cancels.Load() {",
			new:  " {",
			test: joined,
		},
		{
			rule: "shared locks move together",
			file: "gateway/worker/locks_move.go",
			old:  "l.shared && s != nil && s.token == l.token || install()",
			new:  "l.shared && s != nil && s.token == 0 || install()",
			test: "./gateway/worker -run '^TestTrapSharedLocksMove$'",
		},
		{
			rule: "who waits for a key at a worker that dies asks on",
			file: "gateway/router/holds_follow.go",
			old:  `return routing.Outcome{Verdict: routing.NotStarted, Err: fmt.Errorf("%s at %s: %w", t.Name, t.Addr, err)}`,
			new:  `return routing.Outcome{Err: fmt.Errorf("%s at %s: %w", t.Name, t.Addr, err)}`,
			test: "./gateway/router -run '^TestTrapHoldWaitsAtAWorkerThatDies$'",
		},
		{
			rule: "the link's client sends a call only if it is said to be one",
			file: "internal/wire/link/client.go",
			old:  "	if IsCall(req.Method) != req.Call {",
			new:  "	if false {",
			test: calls,
		},
		{
			rule: "an http.Handler behind the link gets no call",
			file: "internal/wire/link/httphandler.go",
			old:  "err != nil || IsCall(r.Method)",
			new:  "err != nil",
			test: calls,
		},
		{
			rule: "a request over HTTP that looks like a call is refused",
			file: "gateway/internal/fields/fields.go",
			old:  "	case link.IsCall(r.Method):\n",
			new:  "	case link.IsCall(r.Method) && false:\n",
			test: clients,
		},
		{
			rule: "a hold's lease runs from before its renewal was sent",
			file: "gateway/router/holds.go",
			old:  "		h.extend(sent, p)",
			new:  "		h.extend(h.holder.now(), p)",
			test: "./gateway/router -run '^TestTrapLeaseRunsFromBeforeTheCall$'",
		},
		{
			rule: "a hold's lease runs from before it was asked for",
			file: "gateway/router/holds_acquire.go",
			old:  "	a.held.extend(sent, grant.Promise)",
			new:  "	sent = c.holder.now()\n	a.held.extend(sent, grant.Promise)",
			test: "./gateway/router -run '^TestTrapLeaseRunsFromBeforeTheCall$'",
		},
		{
			rule: "a hold ends with its owner's lease",
			file: "gateway/router/holds.go",
			old:  ".Within(sent, p.Cancel, p.Surrender)",
			new:  "",
			test: lease,
		},
		{
			rule: "a hold that is not renewed is cancelled at its deadline",
			file: "gateway/router/holds.go",
			old:  "	if h.lease.Cancel.Passed(now) {",
			new:  "	if false {",
			test: lease + " -timeout 20s",
		},
		{
			rule: "a hold that its owner does not know is cancelled at once",
			file: "gateway/router/holds.go",
			old:  `h.loseLocked("does not hold it any more")`,
			new:  "h.sent = sent",
			test: lease,
		},
		{
			rule: "who asks the context of a hold compares its deadline",
			file: "gateway/router/holds.go",
			old:  "		along.held.check()\n",
			new:  "",
			test: "./gateway/router -run '^TestTrapHoldComparesItsDeadline$'",
		},
		{
			rule: "a key that was waited for is confirmed before its function starts",
			file: "gateway/router/holds_acquire.go",
			old:  "h.lease.Admits(now) && now.Mono-h.sent.Mono < hs.due()",
			new:  "now.Mono >= 0",
			test: "./gateway/router -run '^TestHoldAfterALongWait$'",
		},
		{
			rule: "holds are renewed",
			file: "gateway/router/holds.go",
			old:  "now.Mono-h.sent.Mono < hs.due() ||",
			new:  "true ||",
			test: "./gateway/router -run '^TestHold$'",
		},
		{
			rule: "an owner frees what is not renewed for its lease",
			file: "gateway/worker/locks_expire.go",
			old:  "		if l.expires > now {",
			new:  "		if l.expires > now-10*p.worker.settings.TTL {",
			test: dead + " -timeout 20s",
		},
		{
			rule: "an owner frees nothing that was renewed within its lease",
			file: "gateway/worker/locks.go",
			old:  "	l.expires = max(l.expires, now+l.lease)\n",
			new:  "",
			test: dead,
		},
		{
			rule: "what was given up when its key was granted holds nothing",
			file: "gateway/worker/locks_calls.go",
			old:  "	over := gaveUp() || ",
			new:  "	over := gaveUp() && false || ",
			test: "./gateway/worker -run '^TestTrapGivenUpWhenGranted$'",
		},
		{
			rule: "an extension does not shorten what is left of a lease",
			file: "gateway/worker/locks_calls.go",
			old:  "l.lease, l.expires = lease, max(l.expires, ls.worker.now()+lease)",
			new:  "l.lease, l.expires = lease, ls.worker.now()+lease",
			test: "./gateway/worker -run '^TestExtend$'",
		},
		{
			rule: "an extended lease is that of renewals",
			file: "gateway/worker/locks_calls.go",
			old:  "l.lease, l.expires = lease, max(l.expires, ls.worker.now()+lease)",
			new:  "l.expires = max(l.expires, ls.worker.now()+lease)",
			test: "./gateway/worker -run '^TestExtend$'",
		},
		{
			rule: "a release while the key is waited for ends the wait",
			file: "gateway/worker/locks.go",
			old:  "	if wait != nil {\n		wait.giveUp()\n	}\n	switch {\n	case l == nil && wait",
			new:  "	switch {\n	case l == nil && wait",
			test: repeats,
		},
		{
			rule: "a call that is repeated finds what it holds",
			file: "gateway/worker/locks_calls.go",
			old:  "	case held != nil:\n		held.expires = max(held.expires, w.now()+held.lease)\n		return held, nil, nil\n",
			new:  "",
			test: repeats + " -timeout 20s",
		},
		{
			rule: "a key that is won while its table closes is no lock",
			file: "gateway/worker/locks_calls.go",
			old:  "closed := err == nil && p.table.SetRemote(l.key, token)",
			new:  "closed := err == nil && p.table.SetRemote(l.key, token) && false",
			test: "./gateway/worker -run '^TestTrapNoLockSlipsIntoAClosedTable$'",
		},
		{
			rule: "locks go along with their partition",
			file: "gateway/worker/locks_move.go",
			old:  "	closed.Locks = lockText(t.order, p.worker.now())\n",
			new:  "",
			test: moves,
		},
		{
			rule: "a worker that does not serve a partition says of its locks that they are elsewhere",
			file: "gateway/worker/locks.go",
			old:  "	case !t.open:\n		return holds.Elsewhere\n	}\n	l.expires",
			new:  "	case l == nil:\n		return holds.Gone\n	}\n	l.expires",
			test: moves,
		},
		{
			rule: "locks that have come from the dead are not renewed",
			file: "gateway/worker/locks_move.go",
			old:  "l.blocks || !e.Renewable",
			new:  "l.blocks",
			test: "./gateway/worker -run '^TestTrapLocksOfTheDeadOnlyBlock$'",
		},
		{
			rule: "a life that has lost its session is not released before its locks have ended",
			file: "gateway/worker/locks_move.go",
			old:  "	for _, l := range slices.Clone(t.order) {\n		switch {\n		case p.vouches(l), l.blocks && !l.lost:",
			new:  "	for _, l := range slices.Clone(t.order) {\n		switch {\n		case true:",
			test: "./gateway/worker -run '^TestTrapALifeIsReleasedAfterItsLocks$'",
		},
		{
			rule: "a life that is over learns that its last lock has ended",
			file: "gateway/worker/locks.go",
			old:  " || l.lost && t.lost == 0 {",
			new:  " {",
			test: "./gateway/worker -run '^TestTrapALifeIsReleasedAfterItsLocks$'",
		},
		{
			rule: "an incarnation is noted before it renews locks that have come to it",
			file: "gateway/worker/locks_calls.go",
			old:  "	if err := ls.note(); err != nil {\n		return holds.Renewal{}, err\n	}\n",
			new:  "",
			test: "./gateway/worker -run '^TestTrapLocksThatHaveComeAreNoted$'",
		},
		{
			rule: "the locks of a partition are as many as fit the text with which they travel",
			file: "gateway/worker/locks_calls.go",
			old:  "	case t.size+l.size() > maxLockText:",
			new:  "	case false:",
			test: "./gateway/worker -run '^TestLocksOfAPartitionAreBounded$'",
		},
		{
			rule: "a holder asks for holds that are elsewhere at their partitions' owners",
			file: "gateway/router/holds.go",
			old:  "	case state == holds.Elsewhere:\n		h.away = true",
			new:  "	case state == holds.Elsewhere:\n		h.away = false",
			test: follows,
		},
		{
			rule: "a holder releases holds that are elsewhere at their partitions' owners",
			file: "gateway/router/holds_follow.go",
			old:  "states[i] == holds.Elsewhere,",
			new:  "states[i] == holds.Elsewhere && false,",
			test: follows,
		},
		{
			rule: "a holder whose owner has left asks the next one",
			file: "gateway/router/holds.go",
			old:  "h.away = hs.isAway(h.partition, p)",
			new:  "h.away = false && hs.isAway(h.partition, p)",
			test: follows,
		},
		{
			rule: "holds are bounded",
			file: "gateway/worker/locks_calls.go",
			old:  "ls.count.Add(1) > int64(w.cfg.MaxHolds)",
			new:  "ls.count.Add(1) < 0",
			test: refused,
		},
		{
			rule: "a key that is held along the caller's chain is refused",
			file: "gateway/worker/locks_calls.go",
			old:  "slices.Contains(held, hashOf(r.Key))",
			new:  "slices.Contains(held, \"\")",
			test: refused + " -timeout 20s",
		},
		{
			rule: "no promise outlasts the owner's lease",
			file: "gateway/worker/locks.go",
			old:  "Cancel: lease.Cancel.Left(now),",
			new:  "Cancel: ls.worker.settings.TTL,",
			test: promise,
		},
		{
			rule: "a hold whose partition was lost is not renewed",
			file: "gateway/worker/locks.go",
			old:  "!l.blocks && l.cancels == p.cancels.Load()",
			new:  "!l.blocks",
			test: promise,
		},
		{
			rule: "an incarnation that holds keys for others is noted before",
			file: "gateway/worker/locks.go",
			old:  "	case cfg.OnIncarnation != nil:",
			new:  "	case false:",
			test: noted,
		},
		{
			rule: "a wait for a key that is given up is known at its owner",
			file: "gateway/router/holds_acquire.go",
			old:  "			a.client.holder.release(p, a.letGo())\n",
			new:  "			p.leave()\n",
			test: "./gateway/router -run '^TestTrapLostGrantIsReleased$'",
		},
		{
			rule: "keys are held in one order",
			file: "gateway/router/doall.go",
			old:  "slices.Sorted(maps.Keys(set))",
			new:  "slices.Collect(maps.Keys(set))",
			test: "./gateway/router -run '^TestDoAll'",
		},
		{
			rule: "an incarnation that was struck off is not released early",
			file: "internal/lockfile/lockfile.go",
			old:  "!strings.HasPrefix(id, struck)",
			new:  "id != struck",
			test: "./internal/lockfile -run '^TestStrike$'",
		},
	}
}
