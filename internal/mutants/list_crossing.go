package main

// crossingMutations are of what may cross the hops from client to app.
func crossingMutations() []mutation {
	const tunnel = "./gateway -run ^TestTrapNoTunnelAroundTheLock$"
	const folded = "./gateway -run ^TestTrapUnderscoreIsHyphenToTheApp$"
	const trailers = "./gateway -run ^TestTrailers$"
	const forwarded = "./gateway -run ^TestForwardingFieldsOfStrangersAreReplaced$"
	return []mutation{
		{
			rule: "the router passes on only allowed upgrades",
			file: "gateway/router.go",
			old:  "	rt.fields.clean(x.in.Header, rt.trusts(r.RemoteAddr))\n",
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
			old:  " || isFolded(name, \"http2-settings\")",
			new:  "",
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
		{
			rule: "_ counts as - in the names of fields",
			file: "gateway/fields.go",
			old:  "case c == '_' || c == '.':",
			new:  "case c == '.':",
			test: folded,
		},
		{
			rule: ". counts as - in the names of fields",
			file: "gateway/fields.go",
			old:  "case c == '_' || c == '.':",
			new:  "case c == '_':",
			test: folded,
		},
		{
			rule: "a namesake of the header that a key is read from does not reach the app",
			file: "gateway/fields.go",
			old:  "isFolded(name, k.folded) && !strings.EqualFold(name, k.name)",
			new:  "k.name == \"\"",
			test: folded,
		},
		{
			rule: "a namesake of a forwarding field does not reach the app",
			file: "gateway/fields.go",
			old:  "	if kind != fieldEndToEnd && !isLiteral(name) {\n		return fieldAlias\n	}\n",
			new:  "",
			test: folded,
		},
		{
			rule: "what Connection names is dropped before the app is told of its execution",
			file: "gateway/handler.go",
			old:  "	a := &appWriter{handler: h, upgrade: h.worker.fields.clean(r.Header, true)}\n	setAppHeader(r.Header, x, baggage)\n",
			new:  "	upgrade := h.worker.fields.upgrade(r.Header)\n	stripKeyway(r.Header)\n	setAppHeader(r.Header, x, baggage)\n	a := &appWriter{handler: h, upgrade: upgrade}\n",
			test: "./gateway -run ^TestConnectionDoesNotNameWhatTheAppIsTold$",
		},
		{
			rule: "the sidecar passes the client's trailers on",
			file: "gateway/sidecar.go",
			old:  "pr.Out.Trailer = pr.In.Trailer; len",
			new:  "len",
			test: trailers,
		},
		{
			rule: "trailers do not authenticate or route",
			file: "gateway/fields.go",
			old:  `"authorization", "www-authenticate", "realm", "cookie", "set-cookie", "host", "baggage",`,
			new:  `"realm",`,
			test: trailers,
		},
		{
			rule: "trailers that were not announced are looked at too",
			file: "gateway/handler.go",
			old:  "		b.rules.stripTrailer(b.request.Trailer)\n",
			new:  "",
			test: trailers,
		},
		{
			rule: "no trailer has the name of the header that a key is read from",
			file: "gateway/fields.go",
			old:  "		if isFolded(name, r.keys[i].folded) {",
			new:  "		if i < 0 {",
			test: trailers,
		},
		{
			rule: "a sidecar does not guess an answer's type",
			file: "gateway/handler.go",
			old:  "if a.handler.detach { // it is an app's behind a sidecar",
			new:  "if false {",
			test: "./gateway -run ^TestNoContentTypeIsGuessed$",
		},
		{
			rule: "forwarding fields of strangers are replaced, over HTTP/1.1",
			file: "gateway/front_conn.go",
			old:  "prior = c.trusted",
			new:  "prior = true",
			test: forwarded,
		},
		{
			rule: "forwarding fields of strangers are replaced, over HTTP/2",
			file: "gateway/front_h2.go",
			old:  "prior = s.conn.trusted",
			new:  "prior = true",
			test: forwarded,
		},
		{
			rule: "forwarding fields of strangers are replaced, by net/http's proxy",
			file: "gateway/router.go",
			old:  "rt.fields.clean(x.in.Header, rt.trusts(r.RemoteAddr))",
			new:  "rt.fields.clean(x.in.Header, true)",
			test: forwarded,
		},
		{
			rule: "TRACE does not reach the app",
			file: "gateway/fields.go",
			old:  "	case r.Method == http.MethodTrace:",
			new:  "	case r.Method == \"\":",
			test: "./gateway -run ^TestRefusedForms$",
		},
		{
			rule: "a target that is no path does not reach the app",
			file: "gateway/fields.go",
			old:  "	case r.URL.Opaque != \"\" || r.URL.Path == \"*\":",
			new:  "	case r.URL.Opaque != \"\":",
			test: "./gateway -run ^TestRefusedForms$",
		},
		{
			rule: "a 502 does not say where the app is",
			file: "gateway/sidecar_link.go",
			old:  "http.Error(rw, public, http.StatusBadGateway)",
			new:  "http.Error(rw, public+\": \"+err.Error(), http.StatusBadGateway)",
			test: "./gateway -run ^TestSidecarOverLinkWithoutApp$",
		},
		{
			rule: "one empty line before a request is taken, not more",
			file: "gateway/front_conn.go",
			old:  "if !emptyLine && c.have >= 2",
			new:  "for (!emptyLine || emptyLine) && c.have >= 2",
			test: "./gateway -run ^TestFrontTakesOneEmptyLineBeforeARequest$",
		},
		{
			rule: "too large a head of an answer is not the client's fault",
			file: "internal/link/clientconn.go",
			old:  "fmt.Errorf(\"%w: %v frame of %d bytes\", ErrAnswerHeaderTooLarge,",
			new:  "fmt.Errorf(\"%w: %v frame of %d bytes\", ErrHeaderTooLarge,",
			test: "./gateway -run ^TestTooLargeAnswerHead$",
		},
	}
}
