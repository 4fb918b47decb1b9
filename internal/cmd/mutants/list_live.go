package main

// liveMutations take away what keeps the live page cheap, bounded and harmless.
func liveMutations() []mutation {
	return []mutation{
		{
			rule: "only so many watch a process",
			file: "gateway/internal/live/live.go",
			old:  "if s.present == MaxViewers {",
			new:  "if false {",
			test: "./gateway/internal/live -run ^TestTrapViewersAreBounded$",
		},
		{
			rule: "a viewer that falls behind is dropped",
			file: "gateway/internal/live/live.go",
			old:  "			delete(s.viewers, v)\n			close(v.events)\n",
			new:  "",
			test: "./gateway/internal/live -run ^TestTrapSlowViewer$",
		},
		{
			rule: "a write to a viewer has an end",
			file: "gateway/internal/live/live.go",
			old:  "time.Now().Add(WriteTimeout)",
			new:  "time.Now().Add(1000 * WriteTimeout)",
			test: "./gateway/internal/live -run ^TestTrapSlowViewer$",
		},
		{
			rule: "no two runs gather at once",
			file: "gateway/internal/live/live.go",
			old:  "if before != nil {",
			new:  "if false && before != nil {",
			test: "./gateway/internal/live -run ^TestTrapRunsFollowEachOther$",
		},
		{
			rule: "the live page runs no script but its own",
			file: "gateway/live.go",
			old:  `"default-src 'none'; script-src " + hashOf("script")`,
			new:  `"default-src 'none'; script-src 'unsafe-inline' " + hashOf("script")`,
			test: "./gateway -run ^TestTrapLivePageIsAlone$",
		},
	}
}
