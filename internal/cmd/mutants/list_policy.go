package main

// policyMutations are of what a router's route asks of the worker.
func policyMutations() []mutation {
	const limits = "./gateway/worker -run ^TestLimitsOfARoute$"
	return []mutation{
		{
			rule: "what another version may have added to a policy is an error",
			file: "gateway/internal/policy/policy.go",
			old:  "if d.bad || len(d.rest) > 0 || ",
			new:  "if d.bad || ",
			test: "./gateway/internal/policy -run ^TestVersionSkew$",
		},
		{
			rule: "a request whose policy is not understood does not run",
			file: "gateway/worker/policy.go",
			old:  "	return fmt.Errorf(\"%w: %w\", errPolicy, err)",
			new:  "	_ = fmt.Errorf(\"%w: %w\", errPolicy, err)\n	return nil",
			test: "./gateway/worker -run ^TestPoliciesOfOtherVersions$",
		},
		{
			rule: "a route's timeout ends its executions",
			file: "gateway/worker/policy.go",
			old:  "	return cmp.Or(p.Timeout, w.cfg.Timeout)",
			new:  "	return w.cfg.Timeout",
			test: limits,
		},
		{
			rule: "a route's wait stands in place of the worker's",
			file: "gateway/worker/policy.go",
			old:  "wait.PerKey, wait.MaxWait = how.policy.QueuePerKey, how.policy.MaxWait",
			new:  "wait.PerKey = how.policy.QueuePerKey",
			test: limits,
		},
		{
			rule: "a route's queue stands in place of the worker's",
			file: "gateway/worker/policy.go",
			old:  "wait.PerKey, wait.MaxWait = how.policy.QueuePerKey, how.policy.MaxWait",
			new:  "wait.MaxWait = how.policy.MaxWait",
			test: limits,
		},
		{
			rule: "a request that does not run takes nothing of its key's rate",
			file: "gateway/worker/exec.go",
			old:  "		w.rates.giveBack(how.policy, key, term)\n",
			new:  "		_ = term\n",
			test: "./gateway/worker -run ^TestRateCountsWhatRuns$",
		},
		{
			rule: "the rate of a key starts anew at its next owner, and at a worker that gets it back",
			file: "gateway/worker/rate.go",
			old:  "maphash.String(rateSeed, key), term}",
			new:  "maphash.String(rateSeed, key), 0 * term}",
			test: "./gateway/worker -run ^TestRateMovesAway$",
		},
		{
			rule: "keys of one rate have buckets of their own",
			file: "gateway/worker/rate.go",
			old:  "maphash.String(rateSeed, key), term}",
			new:  "0, term}",
			test: "./gateway/worker -run ^TestRateBucketsAreBounded$",
		},
		{
			rule: "the buckets of rates are bounded",
			file: "gateway/worker/rate.go",
			old:  "len(r.byFull) >= r.most || ",
			new:  "",
			test: "./gateway/worker -run ^TestRateBucketsAreBounded$",
		},
		{
			rule: "an event stream holds no key, on the short way",
			file: "gateway/worker/sidecar.go",
			old:  "	if hasEventStream(e.Fields) {\n",
			new:  "	if false {\n",
			test: "./gateway/router -run ^TestStreamsHoldNoKey$",
		},
		{
			rule: "only an answer that is a stream lets its key go",
			file: "gateway/worker/stream.go",
			old:  "status != http.StatusSwitchingProtocols && !isEventStream(a.Header().Get(\"Content-Type\"))",
			new:  "a.upgrade == \"\" && status != http.StatusSwitchingProtocols && !isEventStream(a.Header().Get(\"Content-Type\"))",
			test: "./gateway/router -run ^TestTrapClientsCannotLetKeysGo$",
		},
		{
			rule: "who holds no key has no token",
			file: "gateway/worker/handler.go",
			old:  "	if isKeyless(x.key) {\n",
			new:  "	if x.key == \"\" {\n",
			test: "./gateway/worker -run ^TestRequestsWithoutTheirKeysHeld$",
		},
		{
			rule: "a route that serializes holds the keys of its streams",
			file: "gateway/worker/stream.go",
			old:  "if r.policy != nil && r.policy.Mode == policy.Serialize {",
			new:  "if r.policy != nil && r.policy.Mode > policy.Unkeyed {",
			test: "./gateway/worker -run ^TestSerializedStreamsHoldTheirKeys$",
		},
		{
			rule: "within a stream that has let its key go nothing runs as a part of its execution",
			file: "gateway/worker/stream.go",
			old:  "	c.ended = true\n",
			new:  "",
			test: "./gateway/worker -run ^TestAStreamIsNoExecution$",
		},
		{
			rule: "streams end when their partition is given away",
			file: "gateway/worker/effects.go",
			old:  "	p.endStreams()\n",
			new:  "",
			test: "./gateway/router -run ^TestStreamsEndWhenTheirPartitionMoves$",
		},
		{
			rule: "workers are told of clients by the router, not by themselves",
			file: "gateway/router/upstream.go",
			old:  "		case kind == fields.Proxy && !trusted, rules.Drops(kind, name), ",
			new:  "		case kind == fields.Proxy && !trusted, kind != fields.Keyway && rules.Drops(kind, name), ",
			test: "./gateway/router -run ^TestWorkersTellClientsApart$",
		},
	}
}
