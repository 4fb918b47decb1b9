package main

// mutation is a rule taken away: one piece of a file replaced by another. The
// test that guards the rule has to fail then.
type mutation struct {
	rule string // what no longer holds, in a few words
	file string // from the repository's root
	old  string // stands in file exactly once
	new  string
	test string // arguments of go test, from the module of file: "./gateway/worker -run '^TestShare$'"

	// covered says why nothing fails without the rule, and why it stays. Such
	// a mutation has to survive.
	covered string
}

// mutations lists every rule that make mutants takes away.
func mutations() []mutation {
	var all []mutation
	for _, list := range [][]mutation{
		leadMutations(),
		newcomerMutations(),
		machineMutations(),
		storeMutations(),
		travelMutations(),
		writtenMutations(),
		crossingMutations(),
		sidecarMutations(),
		spansMutations(),
		healthMutations(),
		linkMutations(),
		routingMutations(),
		frontMutations(),
		publicMutations(),
		settingsMutations(),
		peerTLSMutations(),
		clientMutations(),
		holdsMutations(),
		turnsMutations(),
		lockAPIMutations(),
		waitsMutations(),
		policyMutations(),
		claimMutations(),
		beginMutations(),
		batchMutations(),
		nodeMutations(),
		routesMutations(),
		authorityMutations(),
		uploadMutations(),
		collapseMutations(),
		liveMutations(),
		operatorMutations(),
	} {
		all = append(all, list...)
	}
	return all
}
