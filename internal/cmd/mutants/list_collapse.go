package main

// collapseMutations take away rules by which equal requests run once.
func collapseMutations() []mutation {
	const (
		collapse = "gateway/worker/collapse.go"
		recorder = "gateway/worker/recorder.go"
		handler  = "gateway/worker/handler.go"
	)
	run := func(test string) string { return "./gateway/worker -timeout 60s -run ^" + test + "$" }
	return []mutation{
		{
			rule: "an answer is no older than the requests that share it",
			file: collapse,
			old:  `case other.form != c.form, other.came > c.began:`,
			new:  `case other.form != c.form:`,
			test: run("TestTrapSharedAnswerIsNoOlderThanItsRequest"),
		},
		{
			rule: "requests that share an answer are equal in their fields",
			file: collapse,
			old:  `case slices.Contains(ownFields, name), fields.IsKeyway(name):`,
			new:  `case name != "", fields.IsKeyway(name):`,
			test: run("TestEqualRequests"),
		},
		{
			rule: "requests that share an answer ask for one host",
			file: collapse,
			old: `	add(host)
`,
			new:  ``,
			test: run("TestEqualRequests"),
		},
		{
			rule: "only requests that have no effect share an answer",
			file: collapse,
			old:  `method != http.MethodGet && method != http.MethodHead || header["Upgrade"] != nil {`,
			new:  `header["Upgrade"] != nil {`,
			test: run("TestSharedAnswersOvertakeNoWrite"),
		},
		{
			rule: "a request with a body shares no answer",
			file: handler,
			old:  `if !how.shares() || r.ContentLength != 0 || innermost(r.Context()) != nil {`,
			new:  `if !how.shares() || innermost(r.Context()) != nil {`,
			test: run("TestEqualRequests"),
		},
		{
			rule: "an answer to one client is not shared",
			file: recorder,
			old:  `case r.head["Set-Cookie"] != nil, r.head["Trailer"] != nil:`,
			new:  `case r.head["Trailer"] != nil:`,
			test: run("TestAnswersForMany"),
		},
		{
			rule: "an answer that depends on the client's address is not shared",
			file: recorder,
			old:  `if name == "*" || slices.ContainsFunc(`,
			new:  `if name == "*" || false && slices.ContainsFunc(`,
			test: run("TestAnswersForMany"),
		},
		{
			rule: "an answer that was not kept whole is not shared",
			file: recorder,
			old:  `case r.failed, s < 200,`,
			new:  `case s < 200,`,
			test: run("TestAnswersForMany"),
		},
		{
			rule: "an answer of a failure is not shared",
			file: recorder,
			old:  `s >= 400 && s != http.StatusNotFound && s != http.StatusGone:`,
			new:  `s >= 600:`,
			test: run("TestAnswersForMany"),
		},
		{
			rule: "an answer that has not the length it says is not shared",
			file: recorder,
			old:  `return ok && n == r.body.Len()`,
			new:  `return ok && n >= 0`,
			test: run("TestAnswersForMany"),
		},
		{
			rule: "the answer of an execution that was cancelled is not shared",
			file: handler,
			old:  `x != (Execution{}) && x.Context().Err() == nil && kept.shareable() {`,
			new:  `x != (Execution{}) && kept.shareable() {`,
			test: run("TestAnswersForMany"),
		},
		{
			rule: "a stream that holds no key any more is not shared",
			file: handler,
			old:  `if x := a.held; x != (Execution{}) && x.Context()`,
			new:  `if x := a.held; x == (Execution{}) || x.Context()`,
			test: run("TestAnswersForMany"),
		},
		{
			rule: "a client that leaves takes a shared answer from nobody",
			file: handler,
			old:  `if h.detach || a.collapse != nil {`,
			new:  `if h.detach {`,
			test: run("TestSharedAnswersOutliveTheirClients"),
		},
		{
			rule: "who shares the answer to another takes nothing of its key's rate",
			file: "gateway/worker/exec.go",
			old:  `err != nil || how.collapse != nil && x.run == nil; notRun {`,
			new:  `err != nil; notRun {`,
			test: run("TestSharedAnswersTakeNothingOfTheRate"),
		},
		{
			rule: "a client that leaves keeps no shared answer",
			file: collapse,
			old:  `if c != nil && c.wait.Taken() {`,
			new:  `if c != nil && false {`,
			test: run("TestSharedAnswersAreGivenBack"),
		},
	}
}
