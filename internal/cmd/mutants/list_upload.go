package main

// uploadMutations are rules of bodies on their way to a worker.
func uploadMutations() []mutation {
	const (
		spooled  = "./gateway/internal/spool -run "
		uploads  = "./gateway/router -timeout 60s -run "
		body     = "gateway/router/body.go"
		hop      = "gateway/internal/hop/hop.go"
		spool    = "gateway/internal/spool/spool.go"
		repeated = "./internal/wire/link -run ^TestOpenedBody"
	)
	return []mutation{
		{
			rule: "a body is read before anybody is asked for the key",
			file: body,
			old:  "	case b.stream, n >= 0 && n <= hop.MaxRepeatedBody && len(b.in.Trailer) == 0 && !upgrade:",
			new:  "	case true:",
			test: uploads + "'^TestTrapASlowUploadHoldsNoKey$/^server$/^link'",
		},
		{
			rule: "only bodies of gRPC over HTTP/2 stream",
			file: hop,
			old:  `return r.ProtoMajor == 2 && strings.EqualFold(kind, "application/grpc")`,
			new:  `return strings.HasPrefix(kind, "application/grpc")`,
			test: uploads + "'^TestARefusalAfterTheBodyHasBegun$/^server$'",
		},
		{
			rule: "no body streams to an app of HTTP/1.1 by the type that its client gives it",
			file: "gateway/router/net_http.go",
			old:  "hop.IsCall(r) && rt.takesCalls(partition)",
			new:  "hop.IsCall(r)",
			test: uploads + "^TestTrapNoBodyStreamsByItsTypeAlone$",
		},
		{
			rule: "a sidecar takes gRPC if the operator says h2c://, and no other does",
			file: "gateway/worker/sidecar.go",
			old:  "	if h2 != w.cfg.GRPC {",
			new:  "	if false {",
			test: "./. -timeout 60s -run ^TestTrapOnlyHTTP2TakesGRPC$",
		},
		{
			rule: "a call that holds a key has a least rate",
			file: "gateway/router/net_http.go",
			old:  "	case call && d.anyWorker:",
			new:  "	case call:",
			test: uploads + "^TestStreamsHaveALeastRate$",
		},
		{
			rule: "a body of gRPC streams",
			file: hop,
			old:  `return r.ProtoMajor == 2 && strings.EqualFold(kind, "application/grpc")`,
			new:  `return kind == "" && false`,
			test: uploads + "'^TestBodiesStream$/^server$'",
		},
		{
			rule: "a length that is too large is answered at once",
			file: body,
			old:  "	case n > b.limit:\n		return errBodyTooLarge\n",
			new:  "",
			test: uploads + "'^TestTooLargeLengthIsAnsweredAtOnce$/^server'",
		},
		{
			rule: "a small body that is too large does not go the fast way",
			file: "gateway/router/upstream.go",
			old:  "r.ContentLength > d.route.smallBody()",
			new:  "r.ContentLength > 64<<10",
			test: uploads + "'^TestBodiesThatAreNotTaken$/^front$/^small,_too_long'",
		},
		{
			rule: "who is refused with a body to come is not waited for",
			file: "gateway/router/net_http.go",
			old:  "	_ = w.control.SetReadDeadline(time.Now().Add(restGrace)) // not every server has it\n",
			new:  "",
			test: uploads + "'^TestTooLargeLengthIsAnsweredAtOnce$/^server'",
		},
		{
			rule: "a body that was kept is gone with its request",
			file: body,
			old:  "	if b.kept.Spool != nil {",
			new:  "	if false {",
			test: uploads + "'^TestLargeUploads$/^server$'",
		},
		{
			rule: "half a body is not sent for the whole",
			file: body,
			old:  "	case failed != nil:\n",
			new:  "	case failed != nil && err == nil:\n",
			test: uploads + "'^TestABodyThatStopsHalfway$/^server$/^large'",
		},
		{
			rule: "a client may use a quarter of the files",
			file: "gateway/internal/spool/shares.go",
			old:  "max(s.pool.Bound(r)/s.parts, 1)",
			new:  "s.pool.Bound(r)",
			test: uploads + "'^TestBodiesThatAreNotTaken$/^server$/^more_than_a_quarter'",
		},
		{
			rule: "each attempt reads a body from its start",
			file: "internal/wire/link/request.go",
			old:  "	if r.Open != nil {\n		r.startCopy(st)\n		return\n	}\n",
			new:  "	if r.Open != nil {\n		r.Body, _ = r.Open()\n		r.Open = nil\n	}\n",
			test: repeated,
		},
		{
			rule: "a body that is too short is not sent for the whole",
			file: "internal/wire/link/repeat.go",
			old:  "total > r.ContentLength || err == io.EOF && total < r.ContentLength",
			new:  "total > r.ContentLength",
			test: repeated,
		},
		{
			rule: "a call keeps a body that nothing can open again",
			file: "gateway/router/client_upload.go",
			old:  "	case x.in.GetBody != nil:",
			new:  "	case true:",
			test: uploads + "'^TestClientUpload'",
		},
		{
			rule: "a worker reads a body before it asks for the key",
			file: "gateway/worker/upload.go",
			old:  "|| r.ContentLength == 0 {",
			new:  "|| true {",
			test: "./gateway/worker -timeout 60s -run ^TestTrapASlowUploadHoldsNoKey$",
		},
		{
			rule: "a worker streams no body by the type that its client gives it",
			file: "gateway/worker/upload.go",
			old:  "	if w.cfg.GRPC && hop.IsCall(r) {",
			new:  "	if hop.IsCall(r) {",
			test: "./gateway/worker -timeout 60s -run ^TestTrapASlowUploadHoldsNoKey$",
		},
		{
			rule: "a spool's file stays for those who read it",
			file: spool,
			old:  "	if !s.closed || s.users > 0 {",
			new:  "	if !s.closed {",
			test: spooled + "^TestClosedWhileRead$",
		},
		{
			rule: "a spool that is closed gives back what it took",
			file: spool,
			old:  "	for r := range resources {\n		s.giveLocked(r, s.taken[r])\n	}\n",
			new:  "",
			test: spooled + "^TestBounds$",
		},
		{
			rule: "a spool has a bound of its own",
			file: spool,
			old:  "	if tooLong {",
			new:  "	if false {",
			test: spooled + "^TestBounds$",
		},
		{
			rule: "memory of a spool is charged by what has come",
			file: spool,
			old:  "max(firstMemory, growth*have, have+n)",
			new:  "max(64<<10, growth*have, have+n)",
			test: spooled + "^TestSlowReaderTakesLittle$",
		},
		{
			rule: "a temporary file has no name",
			file: "gateway/internal/spool/files_unix.go",
			old:  "	err := os.Remove(f.Name())",
			new:  "	err := error(nil)",
			test: spooled + "^TestFilesHaveNoName$",
		},
	}
}
