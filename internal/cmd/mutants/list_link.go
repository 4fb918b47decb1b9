package main

func linkMutations() []mutation {
	const (
		explore    = "./localmutex -run ^TestExplore$"
		table      = "./localmutex -run ^TestTable$"
		conns      = "./internal/wire/link -run ^TestMoreConnections$"
		abandoned  = "./internal/wire/link -run ^TestAbandonedRequestsCount$"
		atTheirs   = "./gateway/router -run ^TestTrapAbandonedRequestsCountForTheirConnection$"
		haveAShare = "./gateway/router -run ^TestTrapAbandonedRequestsHaveAShare$"
	)
	return []mutation{
		{
			rule: "a short body can be refused however much of it was read",
			file: "internal/wire/link/stream.go",
			old:  "if s.short || s.inErr != nil {",
			new:  "if s.inErr != nil {",
			test: "./internal/wire/link -run '^TestShortBodiesCanBeRefused$'",
		},
		{
			rule: "a grant of a waiter that gives up is passed on",
			file: "localmutex/table.go",
			old: `	case granted:
		e.holder = nil
		return t.endLocked(e), true
	}
`,
			new:  "	}\n",
			test: explore,
		},
		{
			rule: "a done context always loses, even to a grant",
			file: "localmutex/table.go",
			old:  "	if done != nil {",
			new:  "	if done != nil && w.state.Load() != granted {",
			test: "./localmutex -run ^TestGrantOfCancelledWaiterIsPassedOn$",
		},
		{
			rule: "a table is closed and listed in one critical section",
			file: "localmutex/table.go",
			old:  "	t.closed = true\n",
			new:  "	defer func() { t.mu.Unlock(); t.mu.Lock(); t.closed = true }()\n",
			test: "./localmutex -run ^TestPromotionRaceOfACrowd$",
		},
		{
			rule: "a close takes back a grant that was not noticed",
			file: "localmutex/table.go",
			old:  "if e.holder != nil && e.holder.state.CompareAndSwap(granted, refused) {",
			new:  "if e.holder != nil && e.holder.state.CompareAndSwap(-1, refused) {",
			test: "./localmutex -run ^TestCloseTakesBackGrant$",
		},
		{
			rule: "those who wait for a key get it in the order in which they came",
			file: "localmutex/turns.go",
			old:  "	w := e.first\n",
			new:  "	w := e.last\n",
			test: explore,
		},
		{
			rule: "an unlock frees only the execution whose token it names",
			file: "localmutex/table.go",
			old:  "!e.claimed() || (e.token != token && token != anyToken) {",
			new:  "!e.claimed() {",
			test: "./localmutex -run ^TestStaleUnlock$",
		},
		{
			rule: "a blocked key is granted to nobody",
			file: "localmutex/table.go",
			old:  "	case e.blocked:\n		return false\n",
			new:  "",
			test: explore,
		},
		{
			rule: "tokens go on rising in a table that is opened again",
			file: "localmutex/table.go",
			old:  "	if first > t.minted {",
			new:  "	if first > 0 {",
			test: table,
		},
		{
			rule: "the waiters of all keys together are bounded",
			file: "localmutex/queue.go",
			old:  "		if n >= total {",
			new:  "		if n < 0 {",
			test: table,
		},
		{
			rule: "a receiver holds its peer to the window",
			file: "internal/wire/link/stream.go",
			old:  "	if len(p) > s.window {\n		return false\n	}\n",
			new:  "",
			test: "./internal/wire/link -run ^TestStreamErrors$",
		},
		{
			rule: "a sender keeps to the window",
			file: "internal/wire/link/stream.go",
			old:  "			s.credit -= n\n			s.mu.Unlock()\n",
			new:  "			s.mu.Unlock()\n",
			test: "./internal/wire/link -run ^TestSlowReaderBlocksNobody$",
		},
		{
			rule: "a request whose head the kernel may have sent may have started",
			file: "internal/wire/link/clientconn.go",
			old:  "		case st.headEnd > handed:",
			new:  "		case st.headEnd > handed || true:",
			test: "./internal/wire/link -run ^TestLostConnection$",
		},
		{
			rule: "of those that a draining server has not taken, none started; the others go on",
			file: "internal/wire/link/clientconn.go",
			old:  "		if id > last {",
			new:  "		if id > 0 {",
			test: "./internal/wire/link -run ^TestShutdown$",
		},
		{
			rule: "half of a connection is for requests that need not wait",
			file: "internal/wire/link/serverwait.go",
			old:  "sc.waits.count < half(sc.cfg.MaxStreams)",
			new:  "sc.waits.count < sc.cfg.MaxStreams",
			test: "./internal/wire/link -run ^TestWaitingShare$",
		},
		{
			rule: "requests over the link wait on the link's share",
			file: "gateway/worker/policy.go",
			old:  "	how.epoch, how.share, how.client = r.Epoch, r, r.Client\n",
			new:  "	how.epoch, how.client = r.Epoch, r.Client\n",
			test: "./gateway/router -run ^TestTrapWaitersLeaveRoomForOtherKeys$",
		},
		{
			rule: "answers that nobody reads give way before they take all of a connection",
			file: "internal/wire/link/serverconn.go",
			old:  "sc.waits.count+sc.slow.Len() <= threeQuarters(sc.cfg.MaxStreams) {",
			new:  "true {",
			test: "./internal/wire/link -run ^TestUnreadAnswersMakeRoom$",
		},
		{
			rule: "of the answers that nobody reads, the one that has waited longest gives way",
			file: "internal/wire/link/serverconn.go",
			old:  "	first := sc.slow.Front()\n",
			new:  "	first := sc.slow.Back()\n",
			test: "./internal/wire/link -run ^TestUnreadAnswersMakeRoom$",
		},
		{
			rule: "requests that wait make answers give way that nobody reads",
			file: "internal/wire/link/serverwait.go",
			old:  "	if may {\n		sc.makeRoom()\n	}\n",
			new:  "",
			test: "./internal/wire/link -run ^TestWaitersMakeRoomToo$",
		},
		{
			rule: "another connection is made when the others are half full",
			file: "internal/wire/link/clientconn.go",
			old:  "	if int64(len(cc.streams)) == half(cc.peer.streams) {",
			new:  "	if int64(len(cc.streams)) == cc.peer.streams {",
			test: conns,
		},
		{
			rule: "requests that come at once find the room that there is",
			file: "internal/wire/link/clientconn.go",
			old:  "	if room <= 0 {",
			new:  "	if cc.room() <= 0 {",
			test: "./internal/wire/link -run ^TestCrowdFindsRoom$",
		},
		{
			rule: "a connection beside the first one is closed when it is not needed",
			file: "internal/wire/link/client.go",
			old:  "				cc.tick = cc.rest\n",
			new:  "				cc.tick = nil\n",
			test: conns,
		},
		{
			rule: "a full worker is said at once, not taken for one that cannot be reached",
			file: "gateway/router/dispatch.go",
			old:  "	case errors.Is(err, link.ErrTooManyStreams), errors.Is(err, hop1.ErrFull):",
			new:  "	case errors.Is(err, hop1.ErrFull):",
			test: "./gateway/router -run ^TestFullWorkerIsSaidAtOnce$",
		},
		{
			rule: "an abandoned request counts until the server is done with it",
			file: "internal/wire/link/clientconn.go",
			old:  "	st.abandoned = true\n",
			new:  "	cc.forgetLocked(st)\n",
			test: abandoned,
		},
		{
			rule: "the server says when it is done with an abandoned request",
			file: "internal/wire/link/serverconn.go",
			old:  "	if abandoned {",
			new:  "	if false && abandoned {",
			test: abandoned,
		},
		{
			rule: "abandoned requests count for their connection",
			file: "gateway/router/http2.go",
			old:  "	if c.source.abandoned.Load() >= maxH2Streams {",
			new:  "	if false {",
			test: atTheirs,
		},
		{
			rule: "beyond the share of a worker, who gives up is refused",
			file: "gateway/router/upstream.go",
			old:  "	if t.Link && p.abandoned.full.Load() && p.abandoned.refuses(x.origin()) {",
			new:  "	if false {",
			test: haveAShare,
		},
		{
			rule: "beyond the share of a worker, others go on",
			file: "gateway/router/abandoned.go",
			old:  "	return n > 0 && n*len(a.by) >= a.count\n",
			new:  "	return n >= 0\n",
			test: haveAShare,
		},
		{
			rule: "links over the bound are refused",
			file: "internal/wire/link/server.go",
			old:  `full, oldest := len(s.conns) >= s.MaxConns, s.greeting.Front()`,
			new:  `full, oldest := false, s.greeting.Front()`,
			test: "./internal/wire/link -run ^TestServerBoundsConnections$",
		},
		{
			rule: "who says no hello makes room for who does",
			file: "internal/wire/link/server.go",
			old:  "	if !full || oldest != nil {",
			new:  "	if !full {",
			test: "./internal/wire/link -run ^TestServerBoundsConnections$",
		},
		{
			rule: "connections that wait are bounded, and make room for links",
			file: "internal/wire/link/split.go",
			old:  "left := patience - ",
			new:  "left := time.Hour - ",
			test: "./internal/wire/link -timeout 20s -run ^TestSplitBoundsSilence$",
		},
		{
			rule: "the largest length crosses the link",
			file: "internal/wire/link/head.go",
			old:  "	if n > 1<<63 {",
			new:  "	if int64(n) < 0 {",
			test: "./internal/wire/link -run ^TestLargestLength$",
		},
		{
			rule: "a length does not wrap around",
			file: "internal/wire/grammar/grammar.go",
			old:  "n > most/10 {",
			new:  "n > most {",
			test: "./internal/wire/grammar -run ^TestParseLength$",
		},
		{
			rule: "a value has no control characters",
			file: "internal/wire/grammar/value.go",
			old:  `c < ' ' && c != '\t' || c == 0x7f }`,
			new:  `c == 0x7f }`,
			test: "./internal/wire/grammar -run ^TestBytes$",
		},
		{
			rule: "the memory of an answer that was given up is not used again",
			file: "internal/wire/link/clientstream.go",
			old:  `unused := st.complete`,
			new:  `unused := true`,
			test: "./internal/wire/link -run ^TestReleasedWhileItRuns$",
		},
		{
			rule: "an answer's head waits only for what ends its reader's wait",
			file: "internal/wire/link/frame.go",
			old:  `h.stream == stream && (h.length > 0 || h.end) &&`,
			new:  `h.stream == stream &&`,
			test: "./internal/wire/link -timeout 20s -run ^TestHeadBeforeNothing$",
		},
		{
			rule: "a request whose client has left ends, whoever watches its context",
			file: "internal/wire/link/stream.go",
			old:  `over := ctx.Err() != nil`,
			new:  `over := false`,
			test: "./internal/wire/link -timeout 20s -run ^TestWatched$",
		},
		{
			rule: "a request whose client has left is interrupted at its worker",
			file: "internal/wire/link/request.go",
			old:  `if st := r.current.Load(); st != nil {`,
			new:  `if st := r.current.Load(); st != nil && st.answered {`,
			test: "./internal/wire/link -timeout 20s -run ^TestWatched$",
		},
	}
}
