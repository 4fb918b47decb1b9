// Package handoff decides, for one worker, which partitions it owns and when.
//
// A Machine is pure: it has no goroutine, no clock, no randomness and no I/O.
// A shell steps it with what happened (Input) and does what it says (Effect).
package handoff
