package main

func newcomerMutations() []mutation {
	return []mutation{
		{
			rule: "a program whose log nobody reads goes on",
			file: "internal/cli/main.go",
			old:  `	signal.Ignore(syscall.SIGPIPE)`,
			new:  ``,
			test: "./internal/cluster -run ^TestOutputThatNobodyReads$",
		},
		{
			rule: "SIGHUP ends nothing",
			file: "internal/cli/main.go",
			old:  `	signal.Notify(hangups, syscall.SIGHUP)`,
			new:  ``,
			test: "./internal/cluster -run ^TestHangupIsIgnored$",
		},
		{
			rule: "an environment variable that no program reads is refused",
			file: "internal/cli/flags.go",
			old:  `	if err := f.checkEnvironment(os.Environ()); err != nil {`,
			new:  `	if err := f.checkEnvironment(nil); err != nil {`,
			test: "./internal/cli -run ^TestUnknownEnvironment$",
		},
		{
			rule: "a path pattern that ends in a slash matches without it",
			file: "gateway/internal/pattern/pattern.go",
			old:  `(rest == "" || p.open)`,
			new:  `(rest == "" && !p.open || slash && p.open)`,
			test: "./gateway -run ^TestKeySources$",
		},
		{
			rule: "a worker of the demo that ends does not end the others",
			file: "internal/cmd/dev/main.go",
			old:  `	for range running {`,
			new:  `	for range 1 {`,
			test: "./internal/cmd/dev -run ^TestWorkersComeAndGo$",
		},
	}
}
