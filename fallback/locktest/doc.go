// Package locktest checks the histories of package lock, as several
// processes see it that are stopped and killed at random, with porcupine. It
// is a module of its own so that users of Keyway do not get what it needs.
//
// The test starts its own binary several times as workers. Each writes what it
// did, with times of a clock that all share, to a file of its own. Afterwards
// two models must explain each key's history: one of the lock, where a holder
// that looks at its context and finds it alive must be the only holder at that
// moment, and where tokens go up; and one of a resource behind package fence,
// which must never take an older token after a newer one.
//
//	go test .                              # 10 s
//	LOCKTEST_FOR=60s go test -v -timeout 5m .
package locktest
