package main

// operatorMutations make metrics and pages lie to those who run a cluster.
func operatorMutations() []mutation {
	return []mutation{
		{
			rule: "who has to wait for a key is counted among the hot keys as it comes",
			file: "gateway/worker/exec.go",
			old:  "	w.hot.add(key, 1, came)\n",
			new:  "",
			test: "./gateway/worker -run ^TestHotKeysOfThoseWhoWait$",
		},
		{
			rule: "a key stays among the hot ones while somebody waits for it",
			file: "gateway/worker/hot.go",
			old:  "n := h.queued(key); n > 0 &&",
			new:  "n := h.queued(key); n > 1000 &&",
			test: "./gateway/worker -run ^TestHotKeysWhoseHolderIsStuck$",
		},
	}
}
