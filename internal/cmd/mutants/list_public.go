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
	}
}
