package main

// turnsMutations are about callers of one process that pass a lock on among themselves.
func turnsMutations() []mutation {
	const (
		file    = "gateway/router/holds_turns.go"
		reserve = "./localmutex -run '^TestReserve$'"
		not     = "./gateway/router -run '^TestTrapNotPassedOn$'"
		bounded = "./gateway/router -run '^TestTurnsAreBounded$'"
	)
	return []mutation{
		{
			rule: "a token that is reserved is nobody else's",
			file: "localmutex/table.go",
			old:  "	t.minted += int64(n)\n",
			new:  "",
			test: reserve,
		},
		{
			rule: "tokens are reserved below the end of their range",
			file: "localmutex/table.go",
			old:  "n = int(min(int64(n), t.limit-1-t.minted))",
			new:  "n = max(n, 0)",
			test: reserve,
		},
		{
			rule: "a closed table reserves no tokens",
			file: "localmutex/table.go",
			old:  "if t.closed || n <= 0 {",
			new:  "if n <= 0 {",
			test: reserve,
		},
		{
			rule: "tokens that are reserved are used up as others",
			file: "gateway/worker/locks_calls.go",
			old:  "		p.minted(next + int64(reserved) - 1)\n",
			new:  "",
			test: "./gateway/worker -run '^TestReservedTokensAreUsedUp$'",
		},
		{
			rule: "a lock is passed on with tokens that were reserved, and no others",
			file: file,
			old:  "if h.left == 0 || ",
			new:  "if ",
			test: "./gateway/router -run '^TestTrapFewerTurns$'",
		},
		{
			rule: "a lock is sure only while its lease admits",
			file: file,
			old:  " && h.lease.Admits(now)",
			new:  "",
			test: not,

			covered: "a lease that its owner ends early ends at once with its cancellation, which was looked at before, and any other one admits until 0.7 of it, when its last renewal is older than 0.4; what has had a longer lease was extended, and is not passed on",
		},
		{
			rule: "a lock that was extended is not passed on",
			file: file,
			old:  " && h.extending == nil",
			new:  "",
			test: not,
		},
		{
			rule: "a lock is not passed on when its renewals fail",
			file: file,
			old:  " && now.Mono-h.sent.Mono < 2*h.dueLocked()",
			new:  "",
			test: not,
		},
		{
			rule: "nobody waits for his turn of a lost lock",
			file: "gateway/router/holds.go",
			old:  "		h.holder.disbandLocked(h)\n",
			new:  "",
			test: "./gateway/router -run '^TestTurnsGoOnBesideALostOne$'",
		},
		{
			rule: "who has passed a lock on does not have it",
			file: "gateway/router/holds.go",
			old:  "return !h.ended && h.token == token",
			new:  "return !h.ended",
			test: "./gateway/router -run '^TestTrapPassedLockIsGone$'",
		},
		{
			rule: "a call for several waits for those who come again, until the last before them has the key",
			file: file,
			old:  "err == nil && a.held.turns.Len() > 0 {",
			new:  "false {",
			test: "./gateway/router -run '^TestTurnsGather$'",
		},
		{
			rule: "who waits does not wait long for others to be asked for with him",
			file: file,
			old:  "time.AfterFunc(gather, ",
			new:  "time.AfterFunc(1000*gather, ",
			test: "./gateway/router -run '^TestTurnsGather$'",
		},
		{
			rule: "nobody waits for turns that were given up",
			file: file,
			old:  "	defer hs.gatheredLocked(h)\n",
			new:  "",
			test: "./gateway/router -run '^TestTurnsGatherForNobody$'",
		},
		{
			rule: "a call for callers who have all given up ends",
			file: file,
			old:  "at.Len() == 0 && left != nil",
			new:  "false",
			test: "./gateway/router -run '^TestTurnsGivenUp$'",
		},
		{
			rule: "a call asks for a bounded number of turns",
			file: file,
			old:  "l.waiting.Len() > 0 && together.Len() < holds.MaxTurns",
			new:  "l.waiting.Len() > 0",
			test: bounded,
		},
		{
			rule: "a line of callers is bounded",
			file: file,
			old:  "case hs.closed, l != nil && l.waiting.Len() >= mostInLine:",
			new:  "case hs.closed:",
			test: bounded,
		},
		{
			rule: "who waits does not add up the waits of others for a worker that nobody reaches",
			file: file,
			old:  "		settleAllLocked(&l.waiting, errAskAlone)\n",
			new:  "",
			test: "./gateway/router -run '^TestTurnsWhenNobodyIsThere$'",
		},
		{
			rule: "nobody waits longer for his turn to hold a key than he is told",
			file: "gateway/router/doall.go",
			old:  ", impatient: true}",
			new:  "}",
			test: "./gateway/router -run '^TestTrapTurnsOfHoldsEnd$'",
		},
		{
			rule: "nobody is refused a key for a lock that may be over",
			file: "gateway/router/holds_acquire.go",
			old:  " || !hs.isSureLocked(h) {",
			new:  " {",
			test: "./gateway/router -run '^TestTrapTryLockOfWhatIsNotHeldHere$'",
		},
		{
			rule: "functions that hold a key take turns",
			file: "gateway/router/doall.go",
			old:  "inLine: true, ",
			new:  "",
			test: "./gateway/router -run '^TestHoldsTakeTurns$'",
		},
		{
			rule: "who waits for his turn hears that the client is closed",
			file: file,
			old:  "	case <-hs.closing:\n		hs.giveUp(t)\n		return nil, errClientClosed\n",
			new:  "",
			test: "./gateway/router -run '^TestCloseEndsTurns$'",
		},
	}
}
