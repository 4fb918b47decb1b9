package main

// healthMutations are about a worker whose app is down, or that is drained.
func healthMutations() []mutation {
	const (
		follows = "./gateway/worker -run ^TestTrapRingFollowsTheApp$"
		only    = "./gateway/worker -run ^TestOnlyWorkerWithoutItsApp$"
		failure = "./gateway/worker -run ^TestOneFailureIsNone$"
		await   = "./gateway/worker -run ^TestAwaitApp$"
	)
	return []mutation{
		{
			rule: "a worker has no place on the ring while its app is down",
			file: "gateway/worker/agreement.go",
			old:  "s.agree.blocked || s.appless != nil",
			new:  "s.agree.blocked",
			test: follows,
		},
		{
			rule: "a worker that is drained has no place on the ring",
			file: "gateway/worker/agreement.go",
			old:  "s.appless != nil || s.drained",
			new:  "s.appless != nil",
			test: "./gateway/worker -run ^TestLeaveAndJoinRing$",
		},
		{
			rule: "a worker is drained when nothing runs there any more",
			file: "gateway/worker/place.go",
			old:  "case !w.onRing() && w.Serving() == 0 && w.running() == 0:",
			new:  "case !w.onRing() && w.Serving() == 0:",
			test: "./gateway/worker -run ^TestLeaveAndJoinRing$",
		},
		{
			rule: "the only worker on the ring cannot be drained",
			file: "gateway/worker/place.go",
			old:  "	if !w.othersServe() {",
			new:  "	if false {",
			test: "./gateway/worker -run ^TestNobodyToTakeOver$",
		},
		{
			rule: "a worker that is being drained comes back if nobody else is left",
			file: "gateway/worker/place.go",
			old:  "case !w.onRing() && !w.othersServe():",
			new:  "case false:",
			test: "./gateway/worker -run ^TestNobodyToTakeOver$",
		},
		{
			rule: "an app that is down gets no requests",
			file: "gateway/worker/sidecar.go",
			old:  "	if err := t.health.refusal(); err != nil {",
			new:  "	if err := error(nil); err != nil {",
			test: only,
		},
		{
			rule: "an app that crashes again and again has to answer for a while",
			file: "gateway/worker/health.go",
			old:  "	if r.crashes < 2 {",
			new:  "	if r.crashes < 100 {",
			test: "./gateway/worker -run ^TestCrashLoopsWait$",
		},
		{
			rule: "an app that has worked for long has not crashed before",
			file: "gateway/worker/health.go",
			old:  "now.Sub(r.since) >= crashPeriod",
			new:  "false",
			test: "./gateway/worker -run ^TestCrashLoopsWait$",
		},
		{
			rule: "the app of the only worker need not have answered for a while",
			file: "gateway/worker/health.go",
			old:  "was == nil || !s.w.othersServe()",
			new:  "was == nil",
			test: only,
		},
		{
			rule: "requests that are refused together are one failure of the app",
			file: "gateway/worker/health.go",
			old:  "			if r.failures > 0 {",
			new:  "			if false {",
			test: failure,
		},
		{
			rule: "want of files is no failure of the app",
			file: "gateway/worker/health.go",
			old:  "		if errors.Is(err, e) {",
			new:  "		if e == nil {",
			test: failure,
		},
		{
			rule: "a request that is refused a connection has the app probed",
			file: "gateway/worker/health.go",
			old:  "		case err = <-h.doubt:\n",
			new:  "		case err = <-(chan error)(nil):\n",
			test: failure,
		},
		{
			rule: "a worker of an app is not on the ring before it has one",
			file: "gateway/worker/health.go",
			old:  "len(w.apps.list) == 0 && w.cfg.AwaitApp",
			new:  "false",
			test: await,
		},
		{
			rule: "an app that was not asked yet does not count as up where it is awaited",
			file: "gateway/worker/health.go",
			old:  "appRecord{up: !w.cfg.AwaitApp}",
			new:  "appRecord{up: true}",
			test: await,
		},
	}
}
