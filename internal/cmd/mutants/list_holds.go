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
		noted   = "./gateway/worker -run '^TestTrapHoldsAreNoted$'"
	)
	return []mutation{
		{
			rule: "who waits for a key at a worker that dies asks on",
			file: "gateway/router/holds_acquire.go",
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
			old:  "			h.extend(sent, answer.Promise)",
			new:  "			sent = hs.now()\n			h.extend(sent, answer.Promise)",
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
			old:  "now.Mono-h.sent.Mono >= hs.due() {",
			new:  "false {",
			test: "./gateway/router -run '^TestHold$'",
		},
		{
			rule: "an owner frees what is not renewed for a TTL",
			file: "gateway/worker/holds.go",
			old:  "time.AfterFunc(ttl, func() { hs.expire(req.ID, h) })",
			new:  "time.AfterFunc(100*ttl, func() { hs.expire(req.ID, h) })",
			test: dead + " -timeout 20s",
		},
		{
			rule: "an owner frees nothing that was renewed within a TTL",
			file: "gateway/worker/holds.go",
			old:  "			h.expires, r.Held[i] = expires, true",
			new:  "			r.Held[i] = expires.IsZero() || true",
			test: dead,
		},
		{
			rule: "what was given up when its key was granted holds nothing",
			file: "gateway/worker/holds.go",
			old:  "	given := wait.Err() != nil || ctx.Err() != nil //",
			new:  "	given := false //",
			test: "./gateway/worker -run '^TestTrapGivenUpWhenGranted$'",
		},
		{
			rule: "a release while the key is waited for ends the wait",
			file: "gateway/worker/holds.go",
			old:  "	case h.cancel != nil:\n		h.cancel()\n	default:",
			new:  "	case h.cancel != nil:\n	default:",
			test: repeats,
		},
		{
			rule: "a call that is repeated finds what it holds",
			file: "gateway/worker/holds.go",
			old:  "		case h.cancel == nil:\n			h.expires",
			new:  "		case false:\n			h.expires",
			test: repeats + " -timeout 20s",
		},
		{
			rule: "holds are bounded",
			file: "gateway/worker/holds.go",
			old:  "len(hs.byID) >= hs.worker.cfg.MaxHolds",
			new:  "false",
			test: refused,
		},
		{
			rule: "a key that is held along the caller's chain is refused",
			file: "gateway/worker/holds.go",
			old:  "slices.Contains(held, hashOf(r.Key))",
			new:  "slices.Contains(held, \"\")",
			test: refused + " -timeout 20s",
		},
		{
			rule: "no promise outlasts the owner's lease",
			file: "gateway/worker/holds.go",
			old:  "Cancel: lease.Cancel.Left(now),",
			new:  "Cancel: hs.worker.settings.TTL,",
			test: promise,
		},
		{
			rule: "a hold whose partition was lost is not renewed",
			file: "gateway/worker/holds.go",
			old:  "h.x.run.part.cancels.Load() == h.x.run.cancels",
			new:  "true",
			test: promise,
		},
		{
			rule: "an incarnation that holds keys for others is noted before",
			file: "gateway/worker/holds.go",
			old:  "	case cfg.OnIncarnation != nil:",
			new:  "	case false:",
			test: noted,
		},
		{
			rule: "a wait for a key that is given up is known at its owner",
			file: "gateway/router/holds_acquire.go",
			old:  "		a.client.holder.release(p, a.id)\n",
			new:  "		p.leave()\n",
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
