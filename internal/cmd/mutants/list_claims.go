package main

// claimMutations are of what an app says that it worked on.
func claimMutations() []mutation {
	const file, test = "gateway/worker/claims.go", "./gateway/worker -run ^TestKeyMismatch"
	return []mutation{
		{
			rule: "an app's key is compared with its execution's",
			file: file,
			old:  "n == 1 && err == nil && claimed == key {",
			new:  "n == 1 && err == nil && claimed != \"\" {",
			test: test,
		},
		{
			rule: "an app's key that is badly encoded is a mismatch",
			file: file,
			old:  "n == 1 && err == nil && claimed == key {",
			new:  "n == 1 && (err != nil || claimed == key) {",
			test: test,
		},
		{
			rule: "several keys of an app are a mismatch",
			file: file,
			old:  "n == 1 && err == nil && claimed == key {",
			new:  "err == nil && claimed == key {",
			test: test,
		},
		{
			rule: "the mismatches that a worker keeps are bounded",
			file: file,
			old:  "	if len(c.last) == maxMismatches {",
			new:  "	if len(c.last) == 10*maxMismatches {",
			test: test,
		},
		{
			rule: "an app's key is compared on the short way",
			file: "gateway/worker/sidecar.go",
			old:  "	s.worker.checkClaimOf(x, e.Fields)\n",
			new:  "",
			test: test,
		},
		{
			rule: "an app's key is compared in answers of net/http",
			file: "gateway/worker/handler.go",
			old:  "len(said) > 0 && a.held != (Execution{})",
			new:  "false",
			test: test,
		},
	}
}
