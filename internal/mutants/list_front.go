package main

// frontMutations take away rules of the router's front.
func frontMutations() []mutation {
	return []mutation{
		{
			rule: "memory for a body is taken as it comes, not as it is announced",
			file: "internal/link/request.go",
			old:  `room := min(int(r.ContentLength), max(firstRead, growth*have))`,
			new:  `room := int(r.ContentLength)`,
			test: "./gateway -run '^TestBodiesOfOthersGetThrough$/^front$/^link'",
		},
		{
			rule: "one client has a share of the memory for bodies",
			file: "gateway/budget.go",
			old:  `b.used+n > b.limit || b.clients[client]+n > b.limit/clientShare`,
			new:  `b.used+n > b.limit`,
			test: "./gateway -run '^TestOneClientHasAShareOfTheBudget$'",
		},
		{
			rule: "a body that was not kept is not sent once more",
			file: "internal/link/request.go",
			old:  `if again && !u.admitted && !u.settled {`,
			new:  `if again && !u.settled {`,
			test: "./gateway -run '^TestABodyThatWasNotKeptIsNotRepeated$'",
		},
		{
			rule: "a body has to come at a least rate, by way of net/http",
			file: "gateway/proxy_payload.go",
			old:  `if b.need -= int64(n); b.need <= 0 {`,
			new:  `if n > 0 {`,
			test: "./gateway -timeout 30s -run '^TestSlowBodiesAreGivenUp$/^server$/^link_small$'",
		},
		{
			rule: "a body has to come at a least rate, over HTTP/1.1",
			file: "gateway/front_conn.go",
			old:  `if b.need -= int64(n); b.need <= 0 && b.left > 0 {`,
			new:  `if b.left > 0 {`,
			test: "./gateway -timeout 30s -run '^TestSlowBodiesAreGivenUp$/^front$/^link_small$'",
		},
		{
			rule: "a body has to come at a least rate, over HTTP/2",
			file: "internal/h2/receive.go",
			old:  `if st.need -= int64(len(body)); st.need <= 0 {`,
			new:  `if len(body) > 0 {`,
			test: "./gateway -timeout 30s -run '^TestSlowBodiesAreGivenUp$/^h2$/^link_small$'",
		},
		{
			rule: "credit of the connection wakes no more streams than it suffices for",
			file: "internal/h2/output.go",
			old:  `credit -= min(st.credit, st.wants)`,
			new:  `credit -= 0`,
			test: "./internal/h2 -run '^TestTinyConnectionCreditWakesFew$'",
		},
		{
			rule: "a list of fields is bounded while it is decoded",
			file: "internal/h2/receive.go",
			old:  `if b.flood() {`,
			new:  `if false {`,
			test: "./internal/h2 -run '^TestReferencesToLargeFields$'",
		},
		{
			rule: "a request has a bounded number of fields",
			file: "internal/h2/head.go",
			old:  `case size > b.left, b.count > maxFields:`,
			new:  `case size > b.left:`,
			test: "./internal/h2 -run '^TestReferencesToLargeFields$'",
		},
		{
			rule: "an answer is no longer than it says",
			file: "gateway/front_conn.go",
			old:  `case int64(len(piece)) > left:`,
			new:  `case false:`,
			test: "./gateway -run '^TestAnswersOfRogueWorkers$'",
		},
		{
			rule: "an answer that is shorter than it says ends the connection",
			file: "gateway/front_conn.go",
			old:  `if left > 0 {`,
			new:  `if false {`,
			test: "./gateway -run '^TestAnswersOfRogueWorkers$'",
		},
		{
			rule: "a client that leaves is noticed though it has sent more",
			file: "gateway/front_conn.go",
			old:  `gone = sock.HungUp(fd)`,
			new:  `gone = sock.Look(fd) == sock.Ended`,
			test: "./gateway -run '^TestClientLeavesAfterSendingMore$/^closes_after_1_'",
		},
		{
			rule: "idle connections make room for those that wait",
			file: "gateway/front.go",
			old:  "		if f.limit.waiting.Load() > 0 {",
			new:  "		if false {",
			test: "./gateway -timeout 20s -run ^TestIdleConnectionsMakeRoom$/^HTTP/1.1$",
		},
		{
			rule: "a connection counts until it is closed, and no longer",
			file: "gateway/front_limit.go",
			old:  "	if !c.closed.Swap(true) {",
			new:  "	if false {",
			test: "./gateway -timeout 20s -run ^TestConnectionsOverTheBoundWait$",
		},
		{
			rule: "connections over the bound wait",
			file: "gateway/front_limit.go",
			old:  "	case f.limit.slots <- struct{}{}:\n		return true\n	default:\n	}",
			new:  "	default:\n		go func() { f.limit.slots <- struct{}{} }()\n		return true\n	}",
			test: "./gateway -timeout 20s -run ^TestConnectionsOverTheBoundWait$",
		},
	}
}
