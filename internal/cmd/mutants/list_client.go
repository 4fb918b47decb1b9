package main

// clientMutations take away rules of a router.Client.
func clientMutations() []mutation {
	const (
		call     = "gateway/router/client_call.go"
		local    = "gateway/router/client_local.go"
		upload   = "gateway/router/client_upload.go"
		dispatch = "gateway/router/dispatch.go"
		baggage  = "gateway/worker/baggage.go"
	)
	run := func(test string) string { return "./gateway/router -timeout 30s -run ^" + test + "$" }
	return []mutation{
		{
			rule: "a client's error says that its request may have run",
			file: dispatch,
			old:  "		if !notStarted {\n",
			new:  "		if false {\n",
			test: run("TestClientMayHaveRun"),
		},
		{
			rule: "a client's error says so of no other request",
			file: dispatch,
			old:  "		if !notStarted {\n",
			new:  "		if true {\n",
			test: run("TestClientMisuse"),
		},
		{
			rule: "an error of a client's answer that has begun says that its request has run",
			file: "gateway/router/client_reply.go",
			old:  "	return r.call.failure(fmt.Errorf(\"%w: %w\", gateway.ErrMayHaveRun, err))",
			new:  "	return r.call.failure(err)",
			test: run("TestClientMayHaveRun"),
		},
		{
			rule: "a client takes no more of an answer than it says",
			file: "gateway/router/client_reply.go",
			old:  "r.left -= int64(n); r.left < 0 {",
			new:  "r.left -= int64(n); false {",
			test: run("TestClientOfARogueWorker"),
		},
		{
			rule: "an answer that is shorter than it says is not the whole, to a client",
			file: "gateway/router/client_reply.go",
			old:  "} else if r.left > 0 && err == io.EOF {",
			new:  "} else if false {",
			test: run("TestClientOfARogueWorker"),
		},
		{
			rule: "a client closes the body of its request once",
			file: upload,
			old:  "!u.closed.CompareAndSwap(false, true)",
			new:  "u.closed.Load()",
			test: run("TestClientMisuse"),
		},
		{
			rule: "a client closes the body of a request that fails",
			file: call,
			old:  "	x.end()\n	x.endBody()\n",
			new:  "	x.end()\n",
			test: run("TestClientMisuse"),
		},
		{
			rule: "a client sends no part of a body that is longer than its length",
			file: upload,
			old:  "	case u.left < 0: ",
			new:  "	case false: ",
			test: run("TestClientMisuse"),
		},
		{
			rule: "a body that does not come holds no client up whose context has ended",
			file: call,
			old:  "		x.unwatch = context.AfterFunc(x.ctx, func() { x.upload.Close() })\n",
			new:  "",
			test: run("TestClientOfABodyThatDoesNotCome"),
		},
		{
			rule: "a client sends nothing of what only Keyway may say",
			file: call,
			old:  "			if c.fields.Drops(fields.KindOf(name), name) || ",
			new:  "			if ",
			test: run("TestClientRequests"),
		},
		{
			rule: "a client gives an answer up that nobody reads when the context has ended",
			file: call,
			old:  "	if !last && x.reply.body == a.body && x.ctx.Done() != nil {",
			new:  "	if false {",
			test: run("TestClientLeavesAnAnswer"),
		},
		{
			rule: "a client that is closed lets nobody wait",
			file: call,
			old:  "	if c.closed.Load() {",
			new:  "	if false {",
			test: run("TestClientClose"),
		},
		{
			rule: "a busy worker's refusal is no answer",
			file: call,
			old:  "a.status == http.StatusTooManyRequests && hop.IsBusy(h.Get)",
			new:  "false",
			test: run("TestClientOfABusyWorker"),
		},
		{
			rule: "the worker of the process holds no key while a small body comes",
			file: call,
			old:  "	whole, err := x.keepBody()\n",
			new:  "	whole, err := false, error(nil)\n",
			test: run("TestClientsBodyHoldsNoKey"),
		},
		{
			rule: "the worker of the process gets no rest of a body alone",
			file: call,
			old:  "c.isLocal(t) && (!x.sent || x.kept || x.request.Body == nil)",
			new:  "c.isLocal(t)",
			test: run("TestClientWhoseOwnWorkerIsSecond"),
		},
		{
			rule: "a request that the worker of the process refuses goes on",
			file: local,
			old:  "	if refusal != nil {",
			new:  "	if false {",
			test: run("TestClientWhoseOwnWorkerRefuses"),
		},
		{
			rule: "an answer of the worker of the process waits for its reader",
			file: local,
			old:  "min(len(p), localWindow-(len(s.pending)-s.taken))",
			new:  "len(p)",
			test: run("TestClientsAnswerIsBounded"),
		},
		{
			rule: "a handler that was told to end has not answered",
			file: local,
			old:  "; s.ctx.Err() != nil {",
			new:  "; false {",
			test: run("TestClientThatLeavesItsOwnWorker"),
		},
		{
			rule: "a request of an execution names the execution's own key",
			file: baggage,
			old:  "		if holds {\n",
			new:  "		if false {\n",
			test: run("TestClientNestedCalls"),
		},
		{
			rule: "a request of an execution names the keys that its own request has named",
			file: baggage,
			old:  "			add(hash)\n",
			new:  "			_ = hash\n",
			test: run("TestClientNestedCalls"),
		},
	}
}
