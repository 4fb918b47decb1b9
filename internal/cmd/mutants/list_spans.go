package main

// spansMutations are about traces: what they cost those that serve requests, and what they tell.
func spansMutations() []mutation {
	const (
		lost    = "./internal/tracing -timeout 1m -run '^TestUnreachableCollectorCostsNobodyAnything$'"
		minute  = "./internal/tracing -run '^TestLostSpansAreLoggedOnceAMinute$'"
		keep    = "./gateway/router -run '^TestSpansKeepWhatTheySay$'"
		whole   = "./gateway/router -run '^TestSpans$'"
		started = "./gateway/internal/spans -run '^TestStart$'"
		parsed  = "./gateway/internal/spans -run '^TestParse$'"
		locks   = "./gateway/router -run '^TestSpansOf(Locks|TheLockService|Turns|Readers|CallsAboutALock)$'"
		access  = "./gateway/router -run '^TestAccessLog(OfBatches)?$'"
		last    = "./internal/wire/link -run '^TestAddLast$'"
	)
	return []mutation{
		{
			rule: "of a trace that is not sampled the owner of a lock has no spans",
			file: "gateway/router/spans_locks.go",
			old:  "	sc := trace.SpanContextFromContext(ctx)\n",
			new:  "	var sc trace.SpanContext\n",
			test: locks,
		},
		{
			rule: "the span of a lock ends with the lock",
			file: "gateway/worker/locks.go",
			old:  "	l.timing.endLock(event)\n",
			new:  "",
			test: locks,
		},
		{
			rule: "the times of an answer without a body go with its head",
			file: "internal/wire/link/responsewriter.go",
			old:  "	case w.wrote > 0 || len(w.out.b) == 0:\n",
			new:  "	case w.answered:\n",
			test: last,
		},
		{
			rule: "what does not fit into a head costs no answer",
			file: "internal/wire/link/responsewriter.go",
			old:  "int64(len(head)-headerLen) <= w.st.c.peer.header",
			new:  "len(head) > headerLen",
			test: last,
		},
		{
			rule: "the router notes times that stand in the head",
			file: "gateway/router/observe.go",
			old:  "	o.timed(a.fields)\n",
			new:  "",
			test: access,
		},
		{
			rule: "a request that ran in a batch has the times of that",
			file: "gateway/worker/batch_http.go",
			old:  "		over.timing = how.timing\n",
			new:  "",
			test: access,
		},
		{
			rule: "a request of which no item could be made has not run",
			file: "gateway/worker/spans.go",
			old:  " && t.wait >= 0 {\n",
			new:  " {\n",
			test: access,
		},
		{
			rule: "a request's wait for its batch began when it came",
			file: "gateway/worker/spans.go",
			old:  "b.began-came, b.ended-b.began",
			new:  "0, b.ended-b.began",
			test: access,
		},
		{
			rule: "what a lock's owner is asked by Extend has a span",
			file: "gateway/router/holds_follow.go",
			old:  " spans: hs.client.spans,",
			new:  "",
			test: locks,
		},
		{
			rule: "the span of an unlock says that the lock was gone",
			file: "gateway/router/spans_locks.go",
			old:  ", errors.Is(err, locking.ErrNotOwner):",
			new:  ", errors.Is(err, locking.ErrLocked):",
			test: locks,
		},
		{
			rule: "a call for callers who take turns is a part of the first one's",
			file: "gateway/router/holds_turns.go",
			old:  "traced: traced, key: l.key",
			new:  "traced: ctx, key: l.key",
			test: locks,
		},
		{
			rule: "a small answer over plain HTTP/1.1 tells the request's times",
			file: "gateway/worker/answer.go",
			old:  "	a.timing.tellHTTP(a.rw.Header())\n",
			new:  "",
			test: access,
		},
		{
			rule: "a span for which there is no room is counted as lost",
			file: "internal/tracing/tracing.go",
			old:  "	case q.waiting.Add(1) > q.room:\n		q.waiting.Add(-1)\n		q.full.Add(1)\n",
			new:  "",
			test: lost,
		},
		{
			rule: "the end waits for a collector for a while only",
			file: "internal/tracing/tracing.go",
			old:  "	defer context.AfterFunc(q.ctx, cancel)()\n",
			new:  "",
			test: lost,
		},
		{
			rule: "what is lost is logged once a minute at most",
			file: "internal/tracing/tracing.go",
			old:  "time.Since(q.saidAt) >= sayEvery {",
			new:  "q.log != nil {",
			test: minute,
		},
		{
			rule: "a span keeps nothing of a request's memory",
			file: "gateway/internal/spans/spans.go",
			old:  "strings.Clone(text[:min(len(text), most)])",
			new:  "text[:min(len(text), most)]",
			test: keep,
		},
		{
			rule: "a span has the key's hash, and not the key, unless it is to have that",
			file: "gateway/internal/spans/spans.go",
			old:  "	if m.keys {\n",
			new:  "	if key != \"\" {\n",
			test: whole,
		},
		{
			rule: "one attempt's Trace Context does not stand beside the client's",
			file: "gateway/router/upstream.go",
			old:  ", traced && spans.IsField(name):",
			new:  ", traced && name == spans.MethodName(\"\"):",
			test: whole,
		},
		{
			rule: "a span that is not recorded makes no attributes",
			file: "gateway/internal/spans/spans.go",
			old:  "startOptions[kind]...)\n	if span.IsRecording() {",
			new:  "startOptions[kind]...)\n	if span != nil {",
			test: started,
		},
		{
			rule: "nor does one that is added when it is over",
			file: "gateway/internal/spans/spans.go",
			old:  "trace.WithTimestamp(began))\n	if span.IsRecording() {",
			new:  "trace.WithTimestamp(began))\n	if span != nil {",
			test: started,
		},
		{
			rule: "a trace of the id 0 is none",
			file: "gateway/internal/spans/context.go",
			old:  "id != [16]byte{} && span != [8]byte{}",
			new:  "span != [8]byte{}",
			test: parsed,
		},
	}
}
