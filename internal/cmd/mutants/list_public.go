package main

// publicMutations take away rules of what the router is to the public: how
// connections of other protocols end, whom it believes, and what it says itself.
func publicMutations() []mutation {
	return []mutation{
		{
			rule: "a close frame comes only between two frames",
			file: "internal/wire/websocket/conn.go",
			old:  "c.ended || !c.frames.AtBoundary() {",
			new:  "c.ended {",
			test: "./internal/wire/websocket -run ^TestGoAwayAmidAFrame$",
		},
		{
			rule: "nothing follows a close frame of the app",
			file: "internal/wire/websocket/conn.go",
			old:  "return c.known && !c.frames.Closed()",
			new:  "return c.known",
			test: "./internal/wire/websocket -run ^TestGoAwayAfterTheAppsClose$",
		},
		{
			rule: "a connection that goes away has a grace",
			file: "internal/wire/websocket/conn.go",
			old:  "func() { netutil.CloseNow(c.Conn) }",
			new:  "func() {}",
			test: "./internal/wire/websocket -timeout 20s -run ^TestGoAwayOfAnAppThatStops$",
		},
		{
			rule: "a server that is shut down waits for its WebSockets",
			file: "gateway/router/tunnels.go",
			old:  "	s.conns[t] = struct{}{}\n",
			new:  "",
			test: "./gateway/router -timeout 60s -run ^TestShutdownEndsWebSocketsBetweenFrames$",
		},
		{
			rule: "only peers of its networks send a PROXY header",
			file: "gateway/router/proxyheader.go",
			old:  "return err == nil && isIn(rt.cfg.ProxyProtocol, from.Addr())",
			new:  "return err == nil && from.IsValid()",
			test: "./gateway/router -run ^TestProxyProtocolOfStrangers$",
		},
		{
			rule: "a peer of the PROXY networks cannot do without a header",
			file: "gateway/router/proxyheader.go",
			old:  "	if client, err = proxyClient(in); err != nil {\n		return nil, nil, err\n",
			new:  "	if client, err = proxyClient(in); err != nil {\n		read, err = in.Peek(in.Buffered())\n		return nil, read, err\n",
			test: "./gateway/router -run ^TestProxyProtocol$",
		},
		{
			rule: "a PROXY header is bounded, in version 2",
			file: "gateway/router/proxyheader.go",
			old:  "case size > proxyHeaderSize:",
			new:  "case false:",
			test: "./gateway/router -run ^TestTrapProxyHeaderForms$",
		},
		{
			rule: "a PROXY header is bounded, in version 1",
			file: "gateway/router/proxyheader.go",
			old:  "&& len(start) < maxProxyLine {",
			new:  "{",
			test: "./gateway/router -run ^TestProxyHeaderIsBounded$",
		},
		{
			rule: "the connections that requests have for themselves are bounded, for each client",
			file: "gateway/router/perclient.go",
			old:  "o.all >= rt.cfg.MaxConnections || client.IsValid() && o.clients[client] >= rt.cfg.MaxConnectionsPerClient {",
			new:  "o.all >= rt.cfg.MaxConnections {",
			test: "./gateway/router -timeout 60s -run ^TestTrapConnectionsOnwardAreBounded$",
		},
		{
			rule: "the connections that requests have for themselves are bounded, for all",
			file: "gateway/router/perclient.go",
			old:  "if o.all >= rt.cfg.MaxConnections || client.IsValid()",
			new:  "if client.IsValid()",
			test: "./gateway/router -timeout 60s -run ^TestTrapConnectionsOnwardAreBounded$",
		},
		{
			rule: "the connections of a client are bounded",
			file: "gateway/router/perclient.go",
			old:  "conn.Count(client) <= s.router.cfg.MaxConnectionsPerClient",
			new:  "conn.Count(client) > 0",
			test: "./gateway/router -run ^TestConnectionsOfAClientAreBounded$",
		},
		{
			rule: "a client of HTTP/2 that has gone is given up",
			file: "internal/wire/h2/conn.go",
			old:  "return now-c.pinged >= patience",
			new:  "return false",
			test: "./internal/wire/h2 -timeout 20s -run ^TestSilentClientsArePinged$",
		},
		{
			rule: "a client of HTTP/2 that takes its answer is not asked for a sign",
			file: "internal/wire/h2/conn.go",
			old:  "now-max(heard, c.out.wrote) >= patience",
			new:  "now-heard >= patience",
			test: "./internal/wire/h2 -timeout 20s -run ^TestSilentClientsArePinged$",
		},
		{
			rule: "over HTTP/2, too, only allowed protocols are changed to",
			file: "gateway/router/http2_tunnel.go",
			old:  "	return w.key != \"\" && rules.Upgrade(r.Header) == \"\"",
			new:  "	return false",
			test: "./gateway/router -run ^TestWebSocketOverHTTP2IsOfAllowedUpgrades$",
		},
		{
			rule: "over HTTP/2 an app that has not changed to WebSocket does not look as if it had",
			file: "gateway/router/http2_tunnel.go",
			old:  "	case res.StatusCode >= 300:",
			new:  "	case res.StatusCode >= 100:",
			test: "./gateway/router -run ^TestWebSocketOverHTTP2IsRefused$",
		},
		{
			rule: "a WebSocket over HTTP/2 may be silent",
			file: "internal/wire/h2/conn.go",
			old:  "		if st.reading && !st.patient {",
			new:  "		if st.reading {",
			test: "./internal/wire/h2 -timeout 20s -run ^TestTimeouts$/^tunnel$",
		},
		{
			rule: "a client that takes text as much as JSON gets neither against its wish",
			file: "gateway/internal/problem/problem.go",
			old:  "return json > 0 && json >= text",
			new:  "return json > 0",
			test: "./gateway/internal/problem -run ^TestAccept$",
		},
		{
			rule: "an answer of Keyway's own names nothing of the inside",
			file: "gateway/worker/sidecar.go",
			old:  "	s.worker.counts.own(kind).ServeHTTP(rw, r)\n",
			new:  "	s.worker.counts.own(kind).With(err.Error()).ServeHTTP(rw, r)\n",
			test: "./gateway/router -run ^TestOwnAnswers$",
		},
	}
}
