//go:build race

package handoff

// underRace says that the race detector makes searches some ten times slower.
const underRace = true
