//go:build !race

package keytable

const underRace = false
