package main

// crossingMutations are of what may cross the hops from client to app.
func crossingMutations() []mutation {
	const tunnel = "./gateway -run ^TestTrapNoTunnelAroundTheLock$"
	return []mutation{
		{
			rule: "the router passes on only allowed upgrades",
			file: "gateway/router.go",
			old:  "	rt.fields.clean(x.in.Header, true)\n",
			new:  "",
			test: tunnel,
		},
		{
			rule: "the worker passes on only allowed upgrades",
			file: "gateway/handler.go",
			old:  "upgrade: h.worker.fields.clean(r.Header, true)}",
			new:  "upgrade: r.Header.Get(\"Upgrade\")}",
			test: tunnel,
		},
		{
			rule: "HTTP2-Settings stays on its connection",
			file: "gateway/fields.go",
			old:  "return kindAmong(fieldHop, name, \"http2-settings\")",
			new:  "return fieldEndToEnd",
			test: tunnel,
		},
		{
			rule: "HTTP itself cannot be an allowed upgrade",
			file: "gateway/fields.go",
			old:  "case lower == \"h2c\" || lower == \"h2\" || lower == \"http\" || lower == \"tls\":",
			new:  "case lower == \"\":",
			test: "./gateway -run ^TestUpgradesThatCannotBeAllowed$",
		},
		{
			rule: "an app does not change protocols unasked",
			file: "gateway/handler.go",
			old:  "	if status == http.StatusSwitchingProtocols && a.upgrade == \"\" && !a.wrote {",
			new:  "	if false {",
			test: "./gateway -run ^TestUnaskedSwitchIsABadGateway$",
		},
	}
}
