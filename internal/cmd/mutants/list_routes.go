package main

// routesMutations take away rules by which a request gets its route and its key.
func routesMutations() []mutation {
	const inJSON = "./gateway -run ^TestKeyInJSON$"
	return []mutation{
		{
			rule: "a request that looked at the clock long ago is counted at the present time",
			file: "gateway/router/table.go",
			old:  `if late < wait {`,
			new:  `if true {`,
			test: "./gateway/router -run '^TestLateRequestsAreNotTooMany$'",
		},
		{
			rule: "a path with a slash behind it has the key of the path without",
			file: "gateway/internal/pattern/pattern.go",
			old:  `(rest == "" || p.open)`,
			new:  `(!slash || p.open)`,
			test: "./gateway -run ^TestKeySources$",
		},
		{
			rule: "a path that is not in its shortest form has no key",
			file: "gateway/keysource.go",
			old:  `if !pattern.IsClean(path) {`,
			new:  `if false {`,
			test: "./gateway -run ^TestKeySources$",
		},
		{
			rule: "a key of JSON is an integer in canonical decimal",
			file: "gateway/keysource_json.go",
			old:  `err == nil && strconv.FormatInt(n, 10) == string(v) &&`,
			new:  `err == nil &&`,
			test: inJSON,
		},
		{
			rule: "a key of JSON is no integer that floats cannot tell from others",
			file: "gateway/keysource_json.go",
			old:  ` && -maxExact <= n && n <= maxExact {`,
			new:  ` {`,
			test: inJSON,
		},
		{
			rule: "a name along a JSON Pointer stands once",
			file: "gateway/keysource_json.go",
			old:  `if found || name != pointer[0] {`,
			new:  `if found && false || name != pointer[0] {`,
			test: inJSON,
		},
		{
			rule: "a name along a JSON Pointer stands in one case",
			file: "gateway/keysource_json.go",
			old:  `if found || name != pointer[0] {`,
			new:  `if found {`,
			test: inJSON,
		},
		{
			rule: "a body in which a key is looked for is JSON by its head",
			file: "gateway/keysource_json.go",
			old: `	case !isJSON(r.KeyHeader("Content-Type")):
		return "", fmt.Errorf("%w: the body's Content-Type is not application/json", ErrBadKey)
`,
			new: `	case !isJSON(r.KeyHeader("Content-Type")):
		return "", nil
`,
			test: "./gateway -run ^TestKeyInABodyThatIsNotJSON$",
		},
		{
			rule: "a request takes the first route that matches",
			file: "gateway/routes/index.go",
			old:  `if best != nil && r.Index >= best.Index {`,
			new:  `if best != nil && r.Index < best.Index {`,
			test: "./gateway/routes -run ^(TestTheFirstThatMatches|FuzzMatch)$",
		},
		{
			rule: "a path that an app may read as another one takes no route",
			file: "gateway/routes/match.go",
			old:  `if t.strict && !pattern.IsClean(path) {`,
			new:  `if false && !pattern.IsClean(path) {`,
			test: "./gateway/routes -run ^TestTheFirstThatMatches$",
		},
		{
			rule: "a path whose encoded slash leads to another route takes none",
			file: "gateway/routes/match.go",
			old:  `plain != r && plain != nil {`,
			new:  `plain != r && plain == nil {`,
			test: "./gateway/routes -run ^TestTheFirstThatMatches$",
		},
		{
			rule: "no two pairs of tenant and key make one key",
			file: "gateway/routes/key.go",
			old:  `return url.PathEscape(tenant) + "/" + key`,
			new:  `return url.PathEscape("")+tenant + "/" + key`,
			test: "./gateway/routes -run ^TestTenants$",
		},
		{
			rule: "routes by which a request could get another key are not put in force",
			file: "gateway/routes/lineage.go",
			old:  `		if l.forms[i] != t.forms[i] {`,
			new:  `		if len(t.forms) > 1 && l.forms[i] != t.forms[i] {`,
			test: "./gateway/router -run ^TestRoutesThatChangeKeysAreRefused$",
		},
		{
			rule: "a route that was taken away keeps its place",
			file: "gateway/routes/lineage.go",
			old:  `	for i := len(l.forms); i < len(t.forms); i++ {`,
			new: `	l.forms, l.names = nil, nil
	for i := range t.forms {`,
			test: "./gateway/routes -run ^TestLineage$",
		},
		{
			rule: "a route says whether its keys are held to those who compare it",
			file: "gateway/routes/lineage.go",
			old: `		held = "not held"
`,
			new: `		held = "held"
`,
			test: "./gateway/routes -run ^TestLineage$",
		},
		{
			rule: "of two routers that have each more routes than the other none takes the other in",
			file: "ring/settings.go",
			old:  `slices.Contains(as, bs[len(bs)-1]) || slices.Contains(bs, as[len(as)-1])`,
			new:  `slices.ContainsFunc(as, func(a string) bool { return slices.Contains(bs, a) })`,
			test: "./ring -run ^TestRoutesAgree$",
		},
		{
			rule: "a router announces no routes that differ from another's",
			file: "ring/gossip/keys.go",
			old:  `if d, differ := o.announced.difference(p.keys); differ {`,
			new:  `if d, differ := o.announced.difference(p.keys); differ && false {`,
			test: "./ring/gossip -run ^TestAnnounceKeySource$",
		},
		{
			rule: "routes come in force after every other router was asked",
			file: "ring/gossip/keys.go",
			old:  `if m.Role != ring.RoleRouter || m.Gossip == c.identity.Gossip {`,
			new:  `if true {`,
			test: "./ring/gossip -run '^TestTrapRoutersChangeAtOneMoment$'",
		},
		{
			rule: "routes do not change while a router cannot be asked",
			file: "ring/gossip/keys.go",
			old:  `if err == nil || !c.sees(m) {`,
			new:  `if true {`,
			test: "./ring/gossip -run '^TestRouterThatCannotBeAsked$'",
		},
		{
			rule: "of two routers that differ the later one has a conflict",
			file: "ring/gossip/keys.go",
			old:  `differ && p.keys.before(o.inForce) && (`,
			new:  `differ && false && (`,
			test: "./ring/gossip -run '^TestTrapRoutersMeetAgain$'",
		},
		{
			rule: "a router with a conflict sends nothing to owners",
			file: "gateway/router/internal/routing/routes.go",
			old:  `if err := r.members.View().KeyConflict; err != nil {`,
			new:  `if err := r.members.View().KeyConflict; false {`,
			test: "./gateway/router -run '^TestTrapRouterStandsAside$'",
		},
		{
			rule: "a router with a conflict sends nothing to any worker",
			file: "gateway/router/internal/routing/any.go",
			old:  `if view.KeyConflict != nil {`,
			new:  `if false {`,
			test: "./gateway/router -run '^TestTrapRouterStandsAside$'",
		},
		{
			rule: "a router with a conflict is not ready",
			file: "gateway/router/router.go",
			old:  `if view.KeyConflict != nil {`,
			new:  `if false {`,
			test: "./gateway/router -run '^TestTrapRouterStandsAside$'",
		},
		{
			rule: "a request without a key runs without one only where its route says so",
			file: "gateway/router/table.go",
			old:  `case w.Any, preflight && w.Preflights():`,
			new:  `case w.Any, preflight:`,
			test: "./gateway/router -run ^TestRoutesOfRequests$",
		},
		{
			rule: "what goes to a plain server has none of Keyway's fields",
			file: "gateway/router/proxy.go",
			old: `	if !x.decision.upstream {
		x.setKeyway(out.Header)`,
			new: `	{
		x.setKeyway(out.Header)`,
			test: "./gateway/router -run ^TestRoutesOfRequests$",
		},
		{
			rule: "a body that streams has the limit of its route, whatever length it says",
			file: "gateway/router/body.go",
			old:  `return &limitedBody{b.paced, b.limit} }`,
			new:  `return b.paced }`,
			test: "./gateway/router -timeout 60s -run ^TestStreamsOfBodiesThatAreTooLarge$",
		},
		{
			rule: "a reload does not fill a route's rate",
			file: "gateway/router/table.go",
			old:  `old.Name == r.Name && old.PerRoute == r.PerRoute {`,
			new:  `old.Name == r.Name && old.PerRoute != r.PerRoute {`,
			test: "./gateway/router -run ^TestRateOfARoute$",
		},
		{
			rule: "a route bounds its bodies of unknown length",
			file: "gateway/router/body.go",
			old:  `if b.left -= int64(n); b.left < 0 {`,
			new:  `if b.left -= int64(n); b.left < -1<<40 {`,
			test: "./gateway/router -run ^TestBodiesOfARoute$",
		},
	}
}
