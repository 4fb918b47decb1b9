package main

// holdsMutations are about calls between members, and the keys that are held by
// them.
func holdsMutations() []mutation {
	const (
		calls   = "./internal/wire/link -run '^TestCalls$'"
		clients = "./gateway/router -run '^TestTrapNoClientMakesACall$'"
	)
	return []mutation{
		{
			rule: "the link's client sends a call only if it is said to be one",
			file: "internal/wire/link/client.go",
			old:  "	if IsCall(req.Method) != req.Call {",
			new:  "	if false {",
			test: calls,
		},
		{
			rule: "an http.Handler behind the link gets no call",
			file: "internal/wire/link/httphandler.go",
			old:  "err != nil || IsCall(r.Method)",
			new:  "err != nil",
			test: calls,
		},
		{
			rule: "a request over HTTP that looks like a call is refused",
			file: "gateway/internal/fields/fields.go",
			old:  "	case link.IsCall(r.Method):\n",
			new:  "	case link.IsCall(r.Method) && false:\n",
			test: clients,
		},
	}
}
