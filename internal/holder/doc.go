// Package holder decides what a process may believe of one lock that it holds at an owner elsewhere. It says until when
// the caller works, when and where the lock is renewed, whether it passes to the next caller of the process, and what
// Unlock returns.
//
// A Lock is pure: it has no goroutine, no clock and no I/O. A shell calls a method for each thing that happened, with a
// reading of the clocks where time matters, and carries out the Decision that the method returns. The tests of this
// package explore the Lock that runs against a model of its owners, with lost, late and repeated calls, moves and crashes.
// Those of gateway/worker/internal/remote run it with the machine of the owners (TestExploreTogether).
//
// A Policy says who keeps the locks of a shell. In gateway/client workers keep them, and the shell
// is the holdings of a Client. In fallback/lock a store keeps them, and the shell is the hold of a
// Locker. A store has no sessions and never moves a lock. Each call about a lock tells the store
// the term, and a shell makes one such call per lock at a time. In both cases a mutex of the shell
// guards the Lock on every call.
//
// # The state
//
// The state says whether a caller works with the lock. After the last caller it says what is known of the release.
//
//	          ┌───────────────▶ working ─────┐
//	          │                  ▲   │       ▼
//	granted ──┼──▶ passing ──────┘   │      lost ──▶ closed ──▶ over
//	          │       ▲ └────────────┤       │                   ▲
//	          │       └── next turn ─┤       ▼                   │
//	          └──────────────────────┴──▶ releasing ──▶ repeating, freed
//
//	granted → passing      it is given to the first of several callers
//	granted → working      its caller begins
//	granted → lost         its owner does not hold it
//	granted → closed       the client was closed
//	granted → releasing    nobody wants it any more
//	passing → passing      the caller does not begin, and another one waits
//	passing → working      the caller begins
//	passing → lost         it was not confirmed in time, or its owner does not hold it
//	passing → closed       the client was closed
//	passing → releasing    the caller does not begin, and nobody else may
//	working → passing      the caller has ended, and another one waits
//	working → lost         it was not confirmed in time, or its owner does not hold it
//	working → closed       the client was closed
//	working → releasing    the caller has ended
//	working → over         another process goes on with it
//	lost → closed          the client was closed
//	lost → releasing       the caller has ended: the owner may still hold it
//	closed → releasing     the caller has ended, which a store is told
//	closed → over          the caller has ended: no worker is told any more
//	releasing → repeating  a call that may have released it has no answer
//	releasing → freed      a call has released it, and the store may still keep it
//	releasing → over       an answer says what has become of it, or its lease has ended
//	repeating → freed      a call has released it, and the store may still keep it
//	repeating → over       an answer says what has become of it, or its lease has ended
//	freed → over           the store does not keep it, or its lease has ended
//
// # The course
//
// The course says where the lock is renewed, and whether a call for that is under way.
//
//	known → renewing       the worker that has confirmed it last is asked
//	renewing → known       that worker has answered, or is asked again
//	renewing → away        that worker does not serve the partition, or cannot be reached
//	away → seeking         the owner of the partition is asked
//	away → known           the owner has answered an extension
//	seeking → known        the owner has answered
//	seeking → away         the owner has not answered, or does not serve the partition any more
//	seeking → renewing     the owner has answered an extension first
//
// The tables in state.go hold the same transitions, and one function each writes the value and checks them.
package holder
