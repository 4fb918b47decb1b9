//go:build !race

package localmutex

const underRace = false
