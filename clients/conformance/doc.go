// Package conformance tries the clients of the lock service, in their languages, on a router and
// workers. It has tests only; internal/cmd/chaos runs the drivers too.
//
// Each client has a driver beside it: a program that does what lines of JSON on its standard input
// say, each at once, and answers with lines of JSON. Its argument has the settings of a client:
// {"urls", "token", "label", "timeout"}. Times are in seconds.
//
//	{"id": 1, "do": "lock", "keys": ["k"], "ttl": 2, "wait": 5, "read": false}
//	{"id": 1, "tokens": {"k": 4711}}
//	{"id": 2, "do": "left", "of": 1}    for how long lock 1 is held yet
//	{"id": 2, "left": 1.8}
//	{"id": 3, "do": "check", "of": 1}   or "unlock", or "cancel", which ends the wait of request 1
//	{"id": 3}
//
// A failed call is answered with {"id", "error", "text"}: error is Locked, Lost, Unavailable,
// Cancelled, or Keyway for any other one. The line {"lost": 1} says that lock 1 is being lost.
package conformance
