// Package remote keeps, for one partition of a worker, the locks that callers in other processes hold.
//
// A Machine is pure: it has no goroutine, no clock, no channel and no I/O. The shell around it, package worker, calls
// its methods with what happened and when, and the machine acts through a small interface, Host. So the tests explore
// the code that runs: workers, moves, crashes, and callers whose calls and answers are lost, late and repeated. A second explorer
// has callers that hold their locks by the machine of package holder, and takes every transition of both machines.
//
// # The story
//
// A lock is an admission to a key that lasts until its holder releases it or its lease ends. It is an entry of its
// partition's keytable.Table, which decides which call gets a key, and an entry of the machine, which decides what
// becomes of it. The holder counts its lease from before it sent its call, so it has ended before the worker frees the
// key. A lock's identity is its id, which the caller draws, and its token.
//
// A lock whose lease is longer than what the worker's session vouches for is granted once the store keeps it, and its
// key is free once the store keeps it no more. While the partition is not served, its locks are frozen: none is
// granted, renewed or released. They move with the partition as a text (text.go).
//
// Each call may be repeated. A repeated acquisition finds its lock by the id, if key and mode are the same; a repeated
// release finds that the release is remembered, and an acquisition that comes after it locks nothing. Attempts of one request carry the request's number, so that a caller
// that gives up ends what its own attempts have acquired, and nothing that another request has found.
//
// # The states of a lock
//
//	none → waiting       a call asks for the key
//	none → held          it has moved here with its partition
//	none → written       it has moved here, or its worker has died, and the store keeps it
//	none → blocked       its worker has died, and the store does not keep it
//	waiting → held       the key was won
//	waiting → none       the key was refused, or the caller has given up
//	held → keeping       its lease is to be longer than the session vouches for
//	held → written       the partition is resumed, and the store kept the lock after all
//	held → lost          everything admitted before was cancelled: the session may be lost
//	held → none          released, expired, moved away, or ended by an operator
//	keeping → written    the store keeps it
//	keeping → held       the partition was closed before the store kept it
//	keeping → removing   ended
//	keeping → none       the partition was closed while the store kept it with another lease
//	written → keeping    the store is asked to keep it longer
//	written → removing   ended
//	written → none       the partition was closed: its place is the store
//	removing → none      the store keeps it no more, or the partition was closed
//	blocked → none       its lease has ended, an operator has ended it, or the partition has been with others since
//	lost → none          likewise, except that it stays when the partition has been with others: its lease has to end
//
// The table in state.go holds the same transitions, and one function, Machine.set, writes the state and checks them.
//
// # Who may change what
//
// The shell has one mutex per partition. It holds the mutex during each call of the machine, and during whatever must
// happen at the same moment: the closing and opening of the keytable.Table. The machine calls its Host with the mutex
// held, which may lock the table's own mutex, but never another partition's.
package remote
