package main

func waitsMutations() []mutation {
	return []mutation{
		{
			rule: "a call waits for as long as MaxWait while nobody serves its key",
			file: "gateway/worker/partition.go",
			old:  "		patience = w.cfg.MaxWait",
			new:  "		_ = patience",
			test: "./gateway/worker -run ^TestWaitsForAPartitionOnItsWay$",
		},
		{
			rule: "a call waits for a key that another worker is to take over from a dead one",
			file: "gateway/worker/partition.go",
			old:  "		case !patient && !p.expected(epoch):",
			new:  "		case !p.expected(epoch):",
			test: "./gateway/worker -run ^TestCallAfterACrashWaitsForTheNextOwner$",
		},
		{
			rule: "a call does not wait for a key that another live worker owns",
			file: "gateway/worker/partition.go",
			old:  "		case patient && p.owned():",
			new:  "		case false:",
			test: "./gateway/worker -run ^TestCallAfterACrashWaitsForTheNextOwner$",
		},
		{
			rule: "how long a key goes unserved yet is counted to the end of the last owner's session",
			file: "ring/handoff/outlook.go",
			old:  "	note(end, ObstacleOwner)",
			new:  "	_ = end",
			test: "./ring/handoff -run ^TestOutlook$",
		},
	}
}
