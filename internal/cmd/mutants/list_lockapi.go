package main

// lockAPIMutations take away what makes the lock service safe to use.
func lockAPIMutations() []mutation {
	const (
		nobody = "./gateway/router -run '^TestTrapLockServiceGrantForNobody$'"
		told   = "./gateway/router -run '^TestTrapLockServiceTellsTheTimeThatIsLeft$'"
		chosen = "./gateway/router -run '^TestLockServiceIdempotencyKey$'"
		back   = "./gateway/router -run '^TestTrapLockServiceGivesBack(NothingThatMoved)?$'"
	)
	return []mutation{
		{
			rule: "a lock that is released by force ends in the store too",
			file: "gateway/worker/locks_operator.go",
			old:  "removals = append(removals, p.endLocked(l, lockForced))",
			new:  "p.removeLocked(l, lockForced)",
			test: "./gateway/router -run '^TestTrapForcedRelease$'",
		},
		{
			rule: "a page of locks has a bound",
			file: "gateway/worker/locks_operator.go",
			old:  "n == gateway.MaxLockRows || ",
			new:  "",
			test: "./gateway/router -run '^TestLockPages$'",
		},
		{
			rule: "a wait for a key bounds the wait for its owner",
			file: "gateway/router/owner_call.go",
			old:  "	if !c.owner.IsZero() {",
			new:  "	if false {",
			test: "./gateway/router -run '^TestTrapWaitIncludesTheOwner$'",
		},
		{
			rule: "a request for a lock waits for an answer no longer than its wait and a fifth of the TTL",
			file: "gateway/router/lockapi_calls.go",
			old:  "WithTimeoutCause(ctx, patience, ",
			new:  "WithTimeoutCause(ctx, 99*patience, ",
			test: "./gateway/router -run '^TestTrapWaitAtASilentOwner$'",
		},
		{
			rule: "what was not asked for is not given up",
			file: "gateway/router/lockapi.go",
			old:  "slices.Clone(q.keys[:q.asked])",
			new:  "slices.Clone(q.keys)",
			test: "./gateway/router -run '^TestTrapWaitIncludesTheOwner$'",
		},
		{
			rule: "a lock of which nobody can be told is released",
			file: "gateway/router/lockapi_calls.go",
			old:  "	if q.chosen {\n",
			new:  "	if q.single {\n",
			test: nobody,
		},
		{
			rule: "a lock whose lease the client has chosen is not released by a router",
			file: "gateway/router/lockapi_calls.go",
			old:  "	if q.chosen {\n",
			new:  "	if q.chosen && !q.single {\n",
			test: nobody,
		},
		{
			rule: "a request that gets some of its keys gives them back",
			file: "gateway/router/lockapi.go",
			old:  "				s.giveBack(q, grants)\n",
			new:  "",
			test: back,
		},
		{
			rule: "what has moved may have been found before",
			file: "gateway/worker/locks_move.go",
			old:  ", l.found = cancels, now+l.expires, true",
			new:  " = cancels, now+l.expires",
			test: back,
		},
		{
			rule: "the time that a lock has left runs from before its owner was asked",
			file: "gateway/router/owner_call.go",
			old:  "ownerAnswer{t, p, sent, ",
			new:  "ownerAnswer{t, p, sent.Add(time.Since(sent)), ",
			test: told,
		},
		{
			rule: "what is told of the time that a lock has left is what is left when it is told",
			file: "gateway/router/lockapi_calls.go",
			old:  "return g.sent.Add(g.lasts).Left(now)",
			new:  "return g.lasts",
			test: told,
		},
		{
			rule: "of several locks the time is told that is left of the first to end",
			file: "gateway/router/lockapi.go",
			old:  "left = min(left, g.left(s.now()))",
			new:  "left = g.left(s.now())",
			test: told,
		},
		{
			rule: "a request that comes again with its Idempotency-Key finds its own lock",
			file: "gateway/router/lockapi_request.go",
			old:  "\"keyway lease\\x00\" + value",
			new:  "\"keyway lease\\x00\" + value + rand.Text()",
			test: chosen,
		},
		{
			rule: "a request with another Idempotency-Key finds nobody's lock",
			file: "gateway/router/lockapi_request.go",
			old:  "\"keyway lease\\x00\" + value",
			new:  "\"keyway lease\\x00\"",
			test: chosen,
		},
		{
			rule: "a lease is of its own locks, and of no others",
			file: "gateway/router/lockapi_request.go",
			old:  "append(append([]byte(\"keyway lock\\x00\"), l[:]...), key...)",
			new:  "append([]byte(\"keyway lock\\x00\"), key...)",
			test: "./gateway/router -run '^TestLockService$'",
		},
		{
			rule: "who unlocks with another's lease is told that it is not his",
			file: "gateway/router/lockapi_calls.go",
			old:  "			return errLockGone\n",
			new:  "			return nil\n",
			test: chosen,
		},
		{
			rule: "an extension leaves the time of a long lock as it is",
			file: "gateway/router/holds.go",
			old:  "!h.written || p.Surrender == 0 {",
			new:  "term <= h.holder.ttl || p.Surrender == 0 {",
			test: "./gateway/router -run '^TestTrapExtendNeverShortens$'",
		},
		{
			rule: "a renewal leaves the time of a lock as it is, however short the lease that it gives",
			file: "gateway/router/holds.go",
			old:  "own.Cancel.Mono > h.own.Cancel.Mono {",
			new:  "true {",
			test: "./gateway/router -run '^TestTrapExtendNeverShortens$'",
		},
		{
			rule: "keys are locked in one order",
			file: "gateway/router/lockapi_request.go",
			old:  "slices.Compact(slices.Sorted(slices.Values(named)))",
			new:  "named",
			test: "./gateway/router -run '^TestTrapLockServiceOrder$'",
		},
		{
			rule: "who has waited long for a lock reads for how long it holds",
			file: "gateway/router/lockapi.go",
			old:  "	return age < g.lasts/5",
			new:  "	return age >= 0",
			test: "./gateway/router -run '^TestLockServiceWaits$'",
		},
		{
			rule: "who waits for a lock of a router that ends is told to ask another one",
			file: "gateway/router/lockapi.go",
			old:  "context.AfterFunc(s.leaving, func() { cancel(errLeaving) })()",
			new:  "cancel(nil)",
			test: "./gateway/router -run '^TestTrapLockServiceLeaves$'",
		},
		{
			rule: "nobody uses the lock service who may not",
			file: "gateway/router/lockapi.go",
			old:  "	switch verdict := (access.Rules{Token: s.cfg.Token, Hosts: s.cfg.Hosts}).Of(r); {",
			new:  "	switch verdict := access.Granted; {",
			test: "./gateway/router -run '^TestTrapLockServiceAccess$'",
		},
	}
}
