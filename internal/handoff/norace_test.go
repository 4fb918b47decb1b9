//go:build !race

package handoff

const underRace = false
