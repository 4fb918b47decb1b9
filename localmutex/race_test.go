//go:build race

package localmutex

// underRace says that the race detector makes searches some ten times slower.
const underRace = true
