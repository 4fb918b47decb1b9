package main

// routingMutations take away rules by which a router finds a worker.
func routingMutations() []mutation {
	const (
		routes = "gateway/router/internal/routing/routes.go"
		hold   = "gateway/router/internal/routing/hold.go"
	)
	played := func(transcript string) string {
		return "./gateway/router/internal/routing -timeout 20s -run ^TestTranscripts$/^" + transcript + "$"
	}
	return []mutation{
		{
			rule: "a router believes a hint only if its epoch is higher than the one known",
			file: routes,
			old:  "old != nil && h.Epoch <= old.Epoch || h.Epoch <= 0",
			new:  "old != nil && h.Epoch < old.Epoch || h.Epoch <= 0",
			test: played("04-epochs"),
		},
		{
			rule: "a router believes no hint without an epoch",
			file: routes,
			old:  " || h.Epoch <= 0 {",
			new:  " {",
			test: played("03-hints-that-are-not-followed"),
		},
		{
			rule: "a router believes only hints of workers in its view",
			file: routes,
			old:  "if !ok || m.Role != ring.RoleWorker {",
			new:  "if !ok && m.Role != 0 {",
			test: played("03-hints-that-are-not-followed"),
		},
		{
			rule: "a round follows no more than maxHops hints",
			file: routes,
			old:  "hops > maxHops {",
			new:  "hops > maxHops+1 {",
			test: played("05-hops"),
		},
		{
			rule: "a worker is asked again within a round only at a higher epoch",
			file: routes,
			old:  "h.Owner == incarnation && h.Epoch >= since",
			new:  "h.Owner == incarnation && h.Epoch > since",
			test: played("07-learned-owner-fails"),
		},
		{
			rule: "nothing more is tried for a client that has left",
			file: routes,
			old:  "		if ctx.Err() != nil {\n			return true, context.Cause(ctx)\n		}\n",
			new:  "",
			test: played("14-client-leaves"),
		},
		{
			rule: "a learned owner wakes those who wait for it",
			file: routes,
			old:  "			r.wakeAll(p)\n",
			new:  "",
			test: played("12-learned-while-waiting"),
		},
		{
			rule: "a request that may have started is not sent again",
			file: "gateway/router/dispatch.go",
			old:  "	case notStarted:",
			new:  "	default:",
			test: "./gateway/router -timeout 60s -run '^TestABodySentIsNotRepeated$/^front$'",
		},
		{
			rule: "a worker that could not be reached is dialled in growing intervals",
			file: "gateway/router/peers.go",
			old:  "(h.probing || time.Now().Before(h.next))",
			new:  "h.probing",
			test: "./gateway/router -run '^TestHeldRequestWakesWhenAWorkerListens$'",
		},
		{
			rule: "one request at a time dials a worker that could not be reached",
			file: "gateway/router/peers.go",
			old:  "(h.probing || time.Now().Before(h.next))",
			new:  "time.Now().Before(h.next)",
			test: "./gateway/router -run '^TestHeldRequestWakesWhenAWorkerListens$'",
		},
		{
			rule: "no more requests wait for an owner than the limit",
			file: hold,
			old:  "h.Holding.Add(1) > int64(h.limit)",
			new:  "h.Holding.Add(1) > int64(h.limit)+1",
			test: played("13-hold-full"),
		},
		{
			rule: "of those who wait for a partition one asks for its owner",
			file: hold,
			old:  "		case w.list.prober <- struct{}{}:\n			w.probes = true\n",
			new:  "		case <-time.After(time.Microsecond):\n",
			test: played("10-crowd"),
		},
		{
			rule: "a prober that leaves lets another one ask",
			file: hold,
			old:  "			<-w.list.prober // another waiter may\n",
			new:  "",
			test: played("14-client-leaves"),
		},
		{
			rule: "those who wait are let in when an attempt is not refused for a while",
			file: hold,
			old:  "time.AfterFunc(admittedAfter, through)",
			new:  "time.AfterFunc(time.Hour, through)",
			test: played("11-slow-answer"),
		},
		{
			rule: "a prober that has got through lets all others in",
			file: hold,
			old:  "|| done && ctx.Err() == nil {",
			new:  "{",
			test: played("10-crowd"),
		},
		{
			rule: "a prober whose client has left has not got through",
			file: hold,
			old:  "done && ctx.Err() == nil {",
			new:  "done {",
			test: played("14-client-leaves"),
		},
		{
			rule: "pauses between attempts grow no longer than lastPause",
			file: hold,
			old:  "min(2*w.pause, lastPause)",
			new:  "2*w.pause",
			test: played("08-hold"),
		},
		{
			rule: "pauses between attempts grow",
			file: hold,
			old:  "min(2*w.pause, lastPause)",
			new:  "min(w.pause, lastPause)",
			test: played("08-hold"),
		},
		{
			rule: "those who wait follow a change of the view at once",
			file: hold,
			old:  "	case <-changed:\n",
			new:  "	case <-time.After(time.Hour):\n		_ = changed\n",
			test: played("08-hold"),
		},
		{
			rule: "a request whose patience ends during a round gets one more only if something has changed",
			file: hold,
			old:  "over || r.look(p) == seen",
			new:  "over",
			test: played("09-last-round"),
		},
		{
			rule: "a request whose patience has ended gets no more than one round more",
			file: hold,
			old:  "case over || r.look(p) == seen:",
			new:  "case over && r.look(p) == seen || r.look(p) == seen:",
			test: played("09-last-round"),
		},
	}
}
