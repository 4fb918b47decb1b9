package main

// authorityMutations take away what decides who is a member.
func authorityMutations() []mutation {
	const (
		keys = "./internal/wire/link -run ^TestKeys$"
		old  = "./internal/wire/link -run ^TestOldHandshake$"
	)
	return []mutation{
		{
			rule: "who changes something at the admin address needs its token",
			file: "gateway/internal/access/access.go",
			old:  "case c.Token != \"\" && !c.hasToken(r):",
			new:  "case false:",
			test: "./gateway -run ^TestTrapAdminToken$",
		},
		{
			rule: "without a token only this machine changes something at the admin address",
			file: "gateway/internal/access/access.go",
			old:  "case c.Token == \"\" && !fromHere(r.RemoteAddr):",
			new:  "case false:",
			test: "./gateway -run ^TestTrapAdminWithoutToken$",
		},
		{
			rule: "no page of another site changes something at the admin address",
			file: "gateway/internal/access/access.go",
			old:  "	case isFromOtherSite(r):",
			new:  "	case false:",
			test: "./gateway -run ^TestTrapAdminToken$",
		},
		{
			rule: "no page of another site has a process profiled",
			file: "gateway/internal/access/access.go",
			old:  "	case works && isFromOtherSite(r):",
			new:  "	case false:",
			test: "./gateway -run ^TestTrapNoProfilesForOtherSites$",
		},
		{
			rule: "a request that only reads comes from a page of another site too",
			file: "gateway/internal/access/access.go",
			old:  "	asWrite.Method = http.MethodPost\n",
			new:  "",
			test: "./gateway -run ^TestTrapNoProfilesForOtherSites$",
		},
		{
			rule: "without the token a request is for a host that is known as this process",
			file: "gateway/internal/access/access.go",
			old:  "	case !c.knows(r) && !c.hasToken(r):",
			new:  "	case false:",
			test: "./gateway -run ^TestTrapAnotherHost$",
		},
		{
			rule: "an address in Host is the one that the connection came in on",
			file: "gateway/internal/access/access.go",
			old:  "	case addr.IsLoopback(), ok && addr == local",
			new:  "	case addr.IsValid(), ok && addr == local",
			test: "./gateway -run ^TestTrapAnotherHost$",
		},
		{
			rule: "a server looks at the proof of a client's hello before it tells anything",
			file: "internal/wire/link/handshake.go",
			old:  "case hs.proves() && !verifies(hs.cfg.Secrets, hello.proof, clientGreets, hs.got[:signed]):",
			new:  "case hs.proves() && !verifies(hs.cfg.Secrets, hello.proof, clientGreets, hs.got[:signed]) && false:",
			test: keys,
		},
		{
			rule: "a server takes no client that has no key",
			file: "internal/wire/link/handshake.go",
			old:  "	hs.purpose = hello.purpose\n	signed := len(hs.got) - len(appendString(nil, hello.proof))\n	switch {\n	case hello.version != Version || hello.proves != hs.proves():",
			new:  "	hs.purpose = hello.purpose\n	signed := len(hs.got) - len(appendString(nil, hello.proof))\n	switch {\n	case hello.version != Version:",
			test: keys,
		},
		{
			rule: "a server takes no client without a proof of its own",
			file: "internal/wire/link/handshake.go",
			old:  "	if hs.proves() && !verifies(hs.cfg.Secrets, m.proof, clientProves,",
			new:  "	if false && !verifies(hs.cfg.Secrets, m.proof, clientProves,",
			test: old,
		},
		{
			rule: "a client looks at the server's proof",
			file: "internal/wire/link/handshake.go",
			old:  "	case hs.proves() && !verifies(hs.cfg.Secrets, hello.proof, serverProves, hs.sent, hs.got[:signed]):",
			new:  "	case hs.proves() && !verifies(hs.cfg.Secrets, hello.proof, serverProves, hs.sent, hs.got[:signed]) && false:",
			test: old,
		},
		{
			rule: "the server's proof is about the client's hello",
			file: "internal/wire/link/handshake.go",
			old:  "			parts = [][]byte{hs.got, parts[0]}\n",
			new:  "			parts = [][]byte{hs.got[:1], parts[0]}\n",
			test: keys,
		},
		{
			rule: "each handshake has numbers of its own",
			file: "internal/wire/link/handshake.go",
			old:  "	_, _ = rand.Read(h.nonce[:]) // never fails\n",
			new:  "	_ = rand.Read\n",
			test: old,
		},
		{
			rule: "what proves one thing proves no other one",
			file: "internal/wire/link/proof.go",
			old:  "append([][]byte{[]byte(r)}, parts...)",
			new:  "append([][]byte{{}}, parts...)",
			test: "./internal/wire/link -run ^TestProofsDiffer$",
		},
		{
			rule: "the parts of a proof have ends",
			file: "internal/wire/link/proof.go",
			old:  "		m.Write(size[:])\n",
			new:  "",
			test: "./internal/wire/link -run ^TestProofsDiffer$",
		},
		{
			rule: "strangers do not fill the log",
			file: "internal/wire/link/server.go",
			old:  "	if last, ok := s.told[what]; ok && time.Since(last) < time.Minute {",
			new:  "	if last, ok := s.told[what]; ok && time.Since(last) < 0 {",
			test: "./internal/wire/link -run ^TestStrangersFillNoLog$",
		},
		{
			rule: "a worker's links ask for proofs",
			file: "gateway/internal/hop/hop.go",
			old:  `Secrets: m.Secrets("keyway link 3"), `,
			new:  "",
			test: "./gateway/worker -run ^TestTrapStrangersOverLink$",
		},
		{
			rule: "a worker takes nothing of strangers over HTTP",
			file: "gateway/worker/authority.go",
			old:  "case !member && !w.cfg.Direct:",
			new:  "case false:",
			test: "./gateway/worker -run ^TestTrapStrangersOverHTTP$",
		},
		{
			rule: "what strangers say in Keyway's fields is not believed",
			file: "gateway/worker/authority.go",
			old:  "			fields.StripKeyway(r.Header)\n",
			new:  "			_ = fields.StripKeyway\n",
			test: "./gateway/worker -run ^TestTrapStrangersOverHTTP$",
		},
		{
			rule: "only connections with a member's handshake are members'",
			file: "gateway/worker/server.go",
			old:  "	if p, ok := conn.(*conns.Admitted).Conn.(*link.Plain); ok {",
			new:  "	if p := new(link.Plain); p != nil {",
			test: "./gateway/worker -run ^TestTrapStrangersOverHTTP$",
		},
		{
			rule: "gossip that other machines reach has a key",
			file: "ring/gossip/listen.go",
			old:  "len(cfg.Keyring) > 0 || addr.Addr().IsLoopback():",
			new:  "true:",
			test: "./ring/gossip -run ^TestTrapGossipWithoutAKey$",
		},
		{
			rule: "the secrets of purposes differ",
			file: "ring/gossip/gossip.go",
			old:  "hkdf.Key(sha256.New, key, nil, purpose, 32)",
			new:  `hkdf.Key(sha256.New, key, nil, "", 32)`,
			test: "./ring/gossip -run ^TestSecrets$",
		},
		{
			rule: "a worker that never had a session gets no traffic",
			file: "gateway/worker/shell.go",
			old:  "l.announced || !l.confirmed || !l.told || s.leaving",
			new:  "l.announced || s.leaving",
			test: "./cmd/router -run ^TestTrapNoSessionNoTraffic$/^never",
		},
		{
			rule: "a worker that has lost its session gets no traffic",
			file: "gateway/worker/shell.go",
			old:  "self.Incarnation, self.State = id, ring.StateJoining",
			new:  "self.Incarnation = id",
			test: "./cmd/router -run ^TestTrapNoSessionNoTraffic$/^has",
		},
	}
}
