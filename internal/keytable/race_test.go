//go:build race

package keytable

// underRace says that the race detector makes searches some ten times slower.
const underRace = true
