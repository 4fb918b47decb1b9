package main

// operatorMutations make metrics and pages lie to those who run a cluster.
func operatorMutations() []mutation {
	return []mutation{
		{
			rule: "who has to wait for a key is counted among the hot keys as it comes",
			file: "gateway/worker/exec.go",
			old:  "	w.hot.taken(key, came)\n",
			new:  "",
			test: "./gateway/worker -run ^TestHotKeysOfThoseWhoWait$",
		},
		{
			rule: "one of many who have to wait counts for those that are not counted",
			file: "gateway/worker/hot.go",
			old:  "n = hotThinned",
			new:  "n = 1",
			test: "./gateway/worker -run ^TestHotKeysOfVeryMany$",
		},
		{
			rule: "who has to wait is counted each in a new window",
			file: "gateway/worker/hot.go",
			old:  "h.thin.Store(int64(h.began + hotWindow))",
			new:  "h.thin.Store(int64(h.began + 100*hotWindow))",
			test: "./gateway/worker -run ^TestHotKeysOfVeryMany$",
		},
		{
			rule: "a key that was looked at once is not said to be hot",
			file: "gateway/worker/hot.go",
			old:  "c.Count-c.Error == sampleEvery && ",
			new:  "false && ",
			test: "./gateway/worker -run ^TestHotKeysAreSampled$",
		},
		{
			rule: "a key stays among the hot ones while somebody waits for it",
			file: "gateway/worker/hot.go",
			old:  "n := h.queued(key); n > 0 &&",
			new:  "n := h.queued(key); n > 1000 &&",
			test: "./gateway/worker -run ^TestHotKeysWhoseHolderIsStuck$",
		},
		{
			rule: "a rate holds, too, against who has read the clock before others",
			file: "gateway/worker/rate.go",
			old:  "now = max(now, r.latest)",
			new:  "now = max(now, 0)",
			test: "./gateway/worker -run ^TestTrapRateOfOneWhoComesLate$",
		},
		{
			rule: "the oldest residue is the one that is waited for longest",
			file: "gateway/worker/moves_residue.go",
			old:  "age = max(age, time.Since(list[i].since))",
			new:  "age = max(age, 0*time.Since(list[i].since))",
			test: "./gateway/worker -run ^TestMetricsOfOwnership$",
		},
		{
			rule: "session slack is the time until nothing starts any more",
			file: "gateway/worker/metrics.go",
			old:  "w.lease.Load().Admit.Left(",
			new:  "w.lease.Load().Cancel.Left(",
			test: "./gateway/worker -run ^TestMetricsOfOwnership$",
		},
		{
			rule: "how long a key was waited for is counted",
			file: "gateway/worker/exec.go",
			old:  "w.counts.waited(p, took)",
			new:  "w.counts.waited(p, 0)",
			test: "./gateway/worker -run ^TestMetricsOfExecutions$",
		},
		{
			rule: "calls that wait for a key are told from locks",
			file: "gateway/worker/locks.go",
			old:  "return max(ls.count.Load()-held, 0)",
			new:  "return max(held, 0)",
			test: "./gateway/worker -run ^TestMetricsOfHoldsAndApps$",
		},
		{
			rule: "the page does not promise that partitions are served soon when it is not known",
			file: "gateway/live_words.go",
			old:  "if l.seconds <= 0 {",
			new:  "if false {",
			test: "./gateway -run ^TestSays$",
		},
		{
			rule: "who holds a lock is told with the time that is left",
			file: "internal/ctl/show.go",
			old:  "h.Label, \"for \" + seconds(h.LeaseSeconds) + \" more\",",
			new:  "h.Label,",
			test: "./internal/ctl -run ^TestWhyIsAKeySlow$",
		},
		{
			rule: "ctl shows no control characters of names and keys",
			file: "internal/ctl/show.go",
			old:  "fmt.Fprintln(a.stdout, console.Printable(text))",
			new:  "fmt.Fprintln(a.stdout, text)",
			test: "./internal/ctl -run ^TestPrintable$",
		},
		{
			rule: "text for a terminal turns no text around",
			file: "internal/console/console.go",
			old:  "{ return !strconv.IsPrint(r) }",
			new:  "{ return unicode.IsControl(r) }",
			test: "./internal/console -run ^TestPrintable$",
		},
	}
}
