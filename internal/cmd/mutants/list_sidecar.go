package main

// sidecarMutations are about what ends an execution at an app.
func sidecarMutations() []mutation {
	const (
		closes         = "./gateway/worker -run '^TestTrapSidecarHoldsKeyUntilAppCloses$'"
		grace          = "./gateway/worker -run '^TestTrapSidecarHoldsKeyForTheGrace$'"
		silent         = "./gateway/worker -run '^TestTrapSilentAppIsGivenUp$'"
		slowReader     = "./gateway/worker -timeout 1m -run '^TestTrapSlowReaderHoldsNoKey$'"
		answersBounded = "./gateway/worker -timeout 1m -run '^TestAnswersAreBounded$'"
		abandoned      = "./gateway/worker -run '^TestTrapAbandonedRequestsAreGivenUp$'"
		leaves         = "./gateway/worker -run '^TestTrapSidecarHoldsKeyWhenClientLeaves$'"
		waits          = "./gateway/worker -run ^TestTrapRequestsWaitForTheApp$"
		giving         = "./internal/wire/hop1 -run '^TestGivingUp$'"
	)
	return []mutation{
		{
			rule: "what a sidecar sends to the app is interrupted when its execution is cancelled",
			file: "gateway/worker/context.go",
			old:  "		c.serves.Interrupt()\n",
			new:  "		_ = c.serves\n",
			test: silent,
		},
		{
			rule: "a sidecar sends nothing to the app of an execution that is cancelled already",
			file: "gateway/worker/context.go",
			old:  "		e.Interrupt()\n",
			new:  "		_ = e\n",
			test: "./gateway/worker -run '^TestTrapSidecarSendsNothingOfALostOwnership$'",
		},
		{
			rule: "the app's connection is half-closed when it is given up",
			file: "internal/wire/hop1/conn.go",
			old:  "_ = netutil.CloseWrite(c.nc)",
			new:  "",
			test: "./gateway/worker -run '^TestSidecarHalfClosesWhatItGivesUp$'",
		},
		{
			rule: "the app's close of a connection that is given up is waited for",
			file: "internal/wire/hop1/pool.go",
			old:  "p.Grace > 0 && !c.awaitEnd(p.Grace)",
			new:  "p.Grace < 0 && !c.awaitEnd(p.Grace)",
			test: closes,
		},
		{
			rule: "the grace is the time between cancel and surrender",
			file: "ring/lease/lease.go",
			old:  "return l.Surrender.Mono - l.Cancel.Mono",
			new:  "return (l.Surrender.Mono - l.Cancel.Mono) / 2",
			test: grace,
		},
		{
			rule: "an app that does not close its connection in time is logged",
			file: "internal/wire/hop1/conn.go",
			old:  "return !errors.Is(err, os.ErrDeadlineExceeded)",
			new:  "return !errors.Is(err, os.ErrDeadlineExceeded) || true",
			test: giving,
		},
		{
			rule: "the handler of a proxied request returns when the app's connection is done with",
			file: "gateway/worker/sidecar.go",
			old:  "	defer a.end()\n",
			new:  "",
			test: closes,
		},
		{
			rule: "a request's body that breaks off gives the app's connection up",
			file: "internal/wire/hop1/transport.go",
			old:  "if err != nil && out.err == nil {",
			new:  "if false {",
			test: grace,
		},
		{
			rule: "a server that changes protocols unasked has not answered",
			file: "internal/wire/hop1/transport.go",
			old:  `t.req.Header.Get("Upgrade") == ""`,
			new:  "false",
			test: "./gateway/router -run '^TestUnaskedSwitchIsABadGateway$'",
		},
		{
			rule: "a body that is offered waits until the server asks for it",
			file: "internal/wire/hop1/transport.go",
			old:  `(t.req.Header.Get("Expect"), "100-continue")`,
			new:  `(t.req.Header.Get("Expect"), "none")`,
			test: "./internal/wire/hop1 -run '^TestRoundTripOffersBodies$'",
		},
		{
			rule: "a request of which something may have left is not said to be unsent",
			file: "internal/wire/hop1/transport.go",
			old:  "if n == 0 && !w.begun {",
			new:  "if !w.begun {",
			test: "./internal/wire/hop1 -run '^TestRoundTripNotSent$'",
		},
		{
			rule: "a connection that is interrupted is given up before RoundTrip returns",
			file: "internal/wire/hop1/transport.go",
			old:  "		t.giveUp()\n		return nil, t.cause(",
			new:  "		go t.giveUp()\n		return nil, t.cause(",
			test: giving,
		},
		{
			rule: "a lost session is released after its last execution",
			file: "ring/handoff/session.go",
			old:  "m.serving+m.closing > 0 || len(m.running) > 0 && m.on(guardDrain)",
			new:  "m.serving+m.closing > 0",
			test: closes,
		},
		{
			rule: "a restart waits for the app of the process before it",
			file: "gateway/worker/shell.go",
			old:  "		case <-time.After(s.w.grace()):\n",
			new:  "		case <-time.After(0):\n",
			test: "./gateway/worker -run '^TestTrapSidecarRestartWaitsForTheApp$'",
		},
		{
			rule: "a restarted worker with --upstream gives its app time",
			file: "start.go",
			old:  "= previous, n.cfg.Upstream != nil",
			new:  "= previous, false",
			test: "./cmd/worker -run '^TestRestartInFrontOfAnApp$'",
		},
		{
			rule: "an execution over HTTP is detached from its client",
			file: "gateway/worker/handler.go",
			old:  "		x.detach()\n	}\n	x.carry(baggage)\n	r = r.WithContext",
			new:  "	}\n	x.carry(baggage)\n	r = r.WithContext",
			test: leaves,
		},
		{
			rule: "an execution over the link is detached from its client",
			file: "gateway/worker/handler.go",
			old:  "		x.detach()\n	}\n	return",
			new:  "	}\n	return",
			test: leaves,
		},
		{
			rule: "a request whose client has left is given up in the end",
			file: "gateway/worker/timeout.go",
			old:  "		case c.left.IsZero() && c.client.Err() != nil:\n			c.left = now\n",
			new:  "",
			test: abandoned,
		},
		{
			rule: "a request whose client has left is given time",
			file: "gateway/worker/timeout.go",
			old:  "now.Sub(c.left) >= p.worker.cfg.AbandonedTimeout",
			new:  "now.Sub(c.left) >= p.worker.cfg.AbandonedTimeout/2",
			test: abandoned,
		},
		{
			rule: "a request over the link that the app does not answer ends after Timeout",
			file: "gateway/worker/handler.go",
			old:  "	x.bound(h.worker.timeoutOf(how.policy))\n	if h.detach {\n		x.detach()\n	}\n	return",
			new:  "	if h.detach {\n		x.detach()\n	}\n	return",
			test: silent,
		},
		{
			rule: "a request over HTTP that the app does not answer ends after Timeout",
			file: "gateway/worker/handler.go",
			old:  "	x.bound(h.worker.timeoutOf(how.policy))\n	if h.detach {\n		x.detach()\n	}\n	x.carry",
			new:  "	if h.detach {\n		x.detach()\n	}\n	x.carry",
			test: silent,
		},
		{
			rule: "what has taken as long as it may is cancelled",
			file: "gateway/worker/timeout.go",
			old:  "			note(c, ErrTimeout)\n",
			new:  "",
			test: silent,
		},
		{
			rule: "who only looks at his context sees that he has taken too long",
			file: "gateway/worker/context.go",
			old:  " || c.late()) {",
			new:  ") {",
			test: "./gateway/worker -run '^TestHandlerTimeout$'",
		},
		{
			rule: "who ends his side of an upgraded connection has left",
			file: "gateway/worker/sidecar.go",
			old:  "	u.run.clientLeft()\n",
			new:  "",
			test: abandoned,
		},
		{
			rule: "an answer over the link is taken at the app's speed",
			file: "gateway/worker/sidecar.go",
			old:  "	s.worker.takeAnswer(x.Context(), w)\n",
			new:  "",
			test: slowReader,
		},
		{
			rule: "an answer of a handler over the link is taken at its speed",
			file: "gateway/worker/handler.go",
			old:  "	h.worker.takeAnswer(x.Context(), w)\n",
			new:  "",
			test: slowReader,
		},
		{
			rule: "an answer over HTTP is sent to its end when the key is free",
			file: "gateway/worker/handler.go",
			old:  "	defer out.finish() // after the key is free\n	defer a.release()\n",
			new:  "	defer a.release()\n	defer out.finish()\n",
			test: slowReader,
		},
		{
			rule: "an answer for which there is no room ends with its execution, over the link",
			file: "internal/wire/link/overflow.go",
			old:  "	defer context.AfterFunc(w.ctx, func() { w.st.stopSending(context.Cause(w.ctx)) })()\n",
			new:  "",
			test: answersBounded,
		},
		{
			rule: "an answer for which there is no room ends with its execution, over HTTP",
			file: "gateway/worker/answer.go",
			old:  "SetWriteDeadline(netutil.Past) })",
			new:  "SetWriteDeadline(netutil.Past.AddDate(9999, 0, 0)) })",
			test: answersBounded,
		},
		{
			rule: "an endless answer that is read leaves nothing behind",
			file: "gateway/worker/answer.go",
			old:  "a.over.taken.Load() >= backlogTurn && ",
			new:  "false && ",
			test: "./gateway/worker -run '^TestEndlessAnswersLeaveNothing$'",
		},
		{
			rule: "a broken answer to a proxied request does not look whole",
			file: "gateway/worker/sidecar.go",
			old:  "	if a.brokeOff {",
			new:  "	if false {",
			test: "./gateway/worker -run '^TestSidecarOverLinkBrokenAnswer$'",
		},
		{
			rule: "connections to an app are bounded",
			file: "internal/wire/hop1/pool.go",
			old:  "		if err := p.await(ctx); err != nil {",
			new:  "		if err := error(nil); err != nil {",
			test: "./internal/wire/hop1 -timeout 20s -run ^TestFullPool$",
		},
		{
			rule: "who waits for a connection to an app does not for ever",
			file: "internal/wire/hop1/pool.go",
			old:  "	if p.Wait > 0 {",
			new:  "	if false {",
			test: "./gateway/worker -timeout 20s -run ^TestAppConnectionsAreBounded$",
		},
		{
			rule: "a request for which the app has no connection left fails with 503",
			file: "gateway/worker/sidecar.go",
			old:  "	case errors.Is(err, hop1.ErrFull):\n		kind",
			new:  "	case false:\n		kind",
			test: "./gateway/worker -run ^TestAppConnectionsAreBounded$",
		},
		{
			rule: "a request that has not reached the app waits at the router",
			file: "gateway/worker/sidecar.go",
			old:  "	if !errors.Is(err, hop1.ErrNotSent) || ",
			new:  "	if err != nil || ",
			test: waits,
		},
		{
			rule: "a batch that has not reached the app waits at the router",
			file: "gateway/worker/batch_sidecar.go",
			old:  "if unsent := b.sidecar.unsent(r.Context(), key, item.Err); unsent != nil {",
			new:  "if unsent := error(nil); unsent != nil {",
			test: waits,
		},
		{
			rule: "the key of a request that has not reached the app is free when it is refused",
			file: "gateway/worker/handler.go",
			old:  "	a.release()\n	if a.link.w == nil {",
			new:  "	if a.link.w == nil {",
			test: "./gateway/worker -run ^TestUnsentRequestHoldsNoKey$",
		},
	}
}
