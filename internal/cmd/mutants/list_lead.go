package main

func leadMutations() []mutation {
	const stopped = "./gateway/worker -run ^TestTrapStoppedBetweenMutexAndStart$"
	return []mutation{
		{
			rule: "after the mutex, cancellations since the key was asked for are compared",
			file: "gateway/worker/exec.go",
			old:  "	case p.cancels.Load() != cancels:\n		err = errCancelled\n",
			new:  "",
			test: stopped,
		},
		{
			rule: "the lease is compared before the cancellations, not after",
			file: "gateway/worker/exec.go",
			old: `	admits := w.admits(time.Now())
	if w.confirming != nil {
		w.confirming()
	}
	switch {
	case !admits:
		err = ErrUnavailable
	case p.cancels.Load() != cancels:
`,
			new: `	live := p.cancels.Load() == cancels
	if w.confirming != nil {
		w.confirming()
	}
	switch {
	case !w.admits(time.Now()):
		err = ErrUnavailable
	case !live:
`,
			test: stopped,
		},
		{
			rule: "the lease is compared after the mutex",
			file: "gateway/worker/exec.go",
			old:  "	case !admits:",
			new:  "	case false && !admits:",
			test: "./gateway/worker -run ^TestTrapStoppedBeforeStart$",
		},
		{
			rule: "the lock file proves nothing of another boot",
			file: "internal/lockfile/lockfile.go",
			old:  " && boot == l.boot",
			new:  "",
			test: "./internal/lockfile -run ^TestLockFile$",
		},
		{
			rule: "a worker is ready when it serves what the ring gives it",
			file: "gateway/worker/shell.go",
			old:  "	if !onRing || served < given {",
			new:  "	if !onRing || served < 0*given {",
			test: "./gateway/worker -run ^TestReady",
		},
		{
			rule: "a shared read is forgotten while its key is held",
			file: "gateway/worker/flights.go",
			old:  "		defer f.forget(fl) // while",
			new:  "		// while",
			test: "./gateway/worker -run ^TestTrapShareIsNoOlderThanItsCall$",
		},
		{
			rule: "what was read within what its first caller holds is shared with nobody",
			file: "gateway/worker/nested.go",
			old:  "			w.flights.part(ctx, c)\n",
			new:  "",
			test: "./gateway/worker -run ^TestShareOfAHolderIsItsOwn$",
		},
		{
			rule: "a flight of before a cancellation is not joined",
			file: "gateway/worker/flights.go",
			old:  " && p.cancels.Load() == fl.cancels)",
			new:  ")",
			test: "./gateway/worker -run ^TestShareJoinsNothingCancelled$",
		},
		{
			rule: "one length only: the requests that net/http reads are followed",
			file: "gateway/internal/conns/follow.go",
			old:  "	if c.hijacked.Load() {",
			new:  "	if true {",
			test: "./gateway/router -run ^TestAmbiguousFraming$",
		},
		{
			rule: "what follows an upgrade is not followed as requests",
			file: "gateway/internal/conns/follow.go",
			old:  "			c.letGo()",
			new:  "			_ = c",
			test: "./gateway/router -run ^TestAllowedUpgrades$",
		},
		{
			rule: "chunks are followed to their end",
			file: "internal/wire/http1/follower.go",
			old:  "	case f.coded:\n		f.state = atChunkSize",
			new:  "	case f.coded:\n		f.state = atRequest",
			test: "./internal/wire/http1 -run ^TestFollower$",
		},
	}
}
