package main

// peerTLSMutations take away what TLS between members rests on.
func peerTLSMutations() []mutation {
	const (
		peers     = "./gateway/worker -run ^TestTrapPeerTLS$"
		strangers = "./gateway/worker -run ^TestTrapStrangersOverTLS$"
		kept      = "./gateway/router -run ^TestTrapPeerTLSIsNotGivenUp$"
		ends      = "./gateway/router -run ^TestTrapPeerTLSConnectionsEndWithTheirCA$"
		proof     = "./internal/wire/link -run ^TestEndProvesNothingUnderTLS$"
	)
	return []mutation{
		{
			rule: "a worker verifies the certificates of members",
			file: "gateway/peertls.go",
			old:  "			return t.verify(cs.PeerCertificates, x509.ExtKeyUsageClientAuth)",
			new:  "			return nil",
			test: peers,
		},
		{
			rule: "a worker takes no member without a certificate",
			file: "gateway/peertls.go",
			old:  "ClientAuth: tls.RequireAnyClientCert, // VerifyConnection verifies it",
			new:  "ClientAuth: tls.NoClientCert,",
			test: strangers,
		},
		{
			rule: "a member verifies the certificate of a worker",
			file: "gateway/peertls.go",
			old:  "			return t.verify(cs.PeerCertificates, x509.ExtKeyUsageServerAuth)",
			new:  "			return nil",
			test: peers,
		},
		{
			rule: "a certificate of a member has the name of members",
			file: "gateway/peertls.go",
			old:  "DNSName: c.Name, ",
			new:  "",
			test: peers,
		},
		{
			rule: "a certificate of a member is good for its end of the connection",
			file: "gateway/peertls.go",
			old:  "KeyUsages: []x509.ExtKeyUsage{usage}",
			new:  "KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}",
			test: peers,
		},
		{
			rule: "members speak TLS 1.3",
			file: "gateway/peertls.go",
			old:  "		MinVersion: tls.VersionTLS13,\n		ClientAuth:",
			new:  "		MinVersion: tls.VersionTLS12,\n		ClientAuth:",
			test: peers,
		},
		{
			rule: "a worker with TLS takes no connection without it",
			file: "internal/wire/link/split.go",
			old:  "	case secure && begins == preface[0]:\n		return s.refuse(conn, wantsTLS, errTLSHere)\n	case secure:",
			new:  "	case secure && false:",
			test: peers,
		},
		{
			rule: "who offers the link shows a certificate, also where others need none",
			file: "gateway/worker/authority.go",
			old:  "		if slices.Contains(hello.SupportedProtos, link.ALPN) {",
			new:  "		if slices.Contains(hello.SupportedProtos, link.ALPN) && !w.cfg.Direct {",
			test: peers,
		},
		{
			rule: "others than members need a certificate where none are taken",
			file: "gateway/worker/authority.go",
			old:  "	if w.cfg.Direct {\n		others.",
			new:  "	if true {\n		others.",
			test: strangers,
		},
		{
			rule: "a member with TLS sends nothing to a worker without it",
			file: "gateway/router/peers.go",
			old:  "	if !m.Link && secure == nil {",
			new:  "	if !m.Link {",
			test: kept,
		},
		{
			rule: "under TLS the end of a connection proves nothing",
			file: "internal/wire/link/clientwait.go",
			old:  "cc.bare.(*tls.Conn); secure ||",
			new:  "cc.bare.(*tls.Conn); secure && false ||",
			test: proof,
		},
		{
			rule: "members that speak TLS and those that do not are of no one cluster",
			file: "ring/settings.go",
			old:  "	case s.PeerTLS != t.PeerTLS && !s.PeerTLSOptional && !t.PeerTLSOptional:",
			new:  "	case false:",
			test: "./ring/gossip -run '^TestRefusals$/^TLS$'",
		},
		{
			rule: "where TLS is optional a worker that announces it is reached with it",
			file: "gateway/router/peers.go",
			old:  "	if ps.plain && !m.TLS {",
			new:  "	if ps.plain {",
			test: "./gateway/router -run ^TestTrapOptionalPeerTLS$",
		},
		{
			rule: "where TLS is optional connections without it are taken",
			file: "gateway/worker/authority.go",
			old:  "return w.cfg.PeerTLS == nil || w.cfg.PeerTLS.Optional()",
			new:  "return w.cfg.PeerTLS == nil",
			test: peers,
		},
		{
			rule: "connections to workers are made anew with other certificates",
			file: "gateway/router/peers.go",
			old:  "		if ps.known.CompareAndDelete(incarnation, p) {\n			p.(*peer).close()\n		}\n		return true",
			new:  "		return true",
			test: ends,
		},
		{
			rule: "links are made anew with a worker's other certificates",
			file: "gateway/worker/server.go",
			old:  "			s.link.Renew()\n",
			new:  "",
			test: ends,
		},
		{
			rule: "a connection for HTTP/1.1 of a member ends with its CA",
			file: "gateway/worker/authority.go",
			old:  "		case member && !m.lasts():",
			new:  "		case member && !m.lasts() && false:",
			test: "./gateway/worker -run ^TestTrapPeerTLSEndsWithItsCA$",
		},
		{
			rule: "bad files of TLS between members replace no good ones",
			file: "gateway/peertls.go",
			old:  "	m, err := t.cfg.load(time.Now())\n	if err != nil {",
			new:  "	m, err := t.cfg.load(time.Now())\n	if t.material.Store(m); err != nil {",
			test: "./gateway -run ^TestPeerTLSRefusesFiles$",
		},
		{
			rule: "a connection under TLS that has ended is seen before a request is written",
			file: "internal/wire/hop1/conn.go",
			old:  "	if c.stale() {\n		return 0, errStale\n	}\n	n, err := c.nc.Write(out)",
			new:  "	n, err := c.nc.Write(out)",
			test: "./internal/wire/hop1 -run ^TestStaleConnections$",
		},
	}
}
