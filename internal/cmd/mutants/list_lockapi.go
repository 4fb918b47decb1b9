package main

// lockAPIMutations take away what makes the lock service safe to use.
func lockAPIMutations() []mutation {
	const (
		nobody = "./gateway/router -run '^TestTrapLockServiceGrantForNobody$'"
		back   = "./gateway/router -run '^TestTrapLockServiceGivesBack(NothingThatMoved)?$'"
	)
	return []mutation{
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
			old:  "	switch verdict := access.Of(r, s.cfg.Token); {",
			new:  "	switch verdict := access.Granted; {",
			test: "./gateway/router -run '^TestTrapLockServiceAccess$'",
		},
	}
}
