package main

func beginMutations() []mutation {
	const (
		begins   = "./internal/wire/link -timeout 60s -run ^TestBeginWaitsForTheKernel$"
		told     = "./internal/wire/link -run ^TestWaitsAreTold$"
		outcomes = "./internal/wire/link -run ^TestOutcomes$"
		proves   = "./internal/wire/link -run ^TestOnlyTheServersEndProves$"
		waiters  = "./gateway/worker -run ^TestTrapWaitersAtADeadWorkerHaveNotRun$"
		batches  = "./gateway/worker -run ^TestTrapBatchesOfADeadWorker$"
	)
	return []mutation{
		{
			rule: "a request that waits begins when the kernel has taken what says so",
			file: "internal/wire/link/serverwait.go",
			old:  "		err = st.c.out.flush(&st.ctx, end)\n",
			new:  "		err = nil\n",
			test: begins,
		},
		{
			rule: "a request whose wait was said is begun only after that was said too",
			file: "internal/wire/link/serverwait.go",
			old:  "	case said:\n",
			new:  "	case begun:\n",
			test: told,
		},
		{
			rule: "a request that may have begun is never said to wait",
			file: "internal/wire/link/serverwait.go",
			old:  "		if st.wait.state == noWait {",
			new:  "		if st.wait.state != unsaid {",
			test: told,
		},
		{
			rule: "a key is not held for long for a router that takes nothing",
			file: "internal/wire/link/flush.go",
			old:  "	if q.written >= end || q.err != nil || q.stuck == q.written {",
			new:  "	if q.written >= end || q.err != nil {",
			test: begins,
		},
		{
			rule: "frames go out in their order, whoever writes them",
			file: "internal/wire/link/flush.go",
			old:  "	if q.now == nil || q.held {",
			new:  "	if q.now == nil {",
			test: "./internal/wire/link -run ^TestFlushLeavesAWriteAlone$",
		},
		{
			rule: "what may have begun is lost with its connection",
			file: "internal/wire/link/clientwait.go",
			old:  "	return st.told == toldWaits && ",
			new:  "	return st.told != untold && ",
			test: outcomes,
		},
		{
			rule: "what nothing was said of is lost with its connection",
			file: "internal/wire/link/clientwait.go",
			old:  "	return st.told == toldWaits && ",
			new:  "	return st.told != toldBegun && ",
			test: outcomes,
		},
		{
			rule: "only the server's end of a connection proves what it has said last",
			file: "internal/wire/link/clientwait.go",
			old:  " || cc.in.end != io.EOF {",
			new:  " {",
			test: proves,
		},
		{
			rule: "a proxy's end of a connection proves nothing",
			file: "internal/wire/link/clientwait.go",
			old:  " || !cc.direct() || cc.in.end",
			new:  " || cc.in.end",
			test: proves,
		},
		{
			rule: "a reset that the writer was told of proves nothing",
			file: "internal/wire/link/clientwait.go",
			old:  "	return failed == nil ||",
			new:  "	return true || failed == nil ||",
			test: proves,
		},
		{
			rule: "a request that has waited does not run before its router knows",
			file: "gateway/worker/exec.go",
			old:  "			if err := how.share.Begin(); err != nil {",
			new:  "			if err := error(nil); err != nil {",
			test: waiters,
		},
		{
			rule: "a batch does not run before the routers of its requests know",
			file: "gateway/worker/batch.go",
			old:  "			c.share.NoteBegin()\n		}\n	}\n	for _, c := range calls {\n		to := begun\n		if c.ctx.Err() != nil || !c.mayBegin() {",
			new:  "			_ = c\n		}\n	}\n	for _, c := range calls {\n		to := begun\n		if c.ctx.Err() != nil {",
			test: batches,
		},
		{
			rule: "a request that is taken from an app over HTTP/2 holds its key for the grace",
			file: "internal/wire/hop2/hop2.go",
			old:  "		if grace <= 0 {",
			new:  "		if true {",
			test: "./gateway/router -run ^TestTrapGRPCCancelHoldsTheKeyForTheGrace$",
		},
	}
}
