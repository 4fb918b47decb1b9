// Package ownership decides with the other members which partitions a worker serves, by the machine of internal/handoff.
//
// One goroutine, the shell, steps the machine with what the store, the
// members and the clock say, and carries out what the machine orders. Everything else only
// posts to it, so ownership has one writer.
//
// An incarnation is one life of a worker, with one session in the store. It admits keys until
// its lease's admit deadline, which each confirmed renewal moves on. A lost session is never taken
// up again: the shell begins another incarnation, and the old one only waits for what still runs.
//
// A partition is open or closed. The shell opens it when the store's record names this
// incarnation, and closes it before it gives it away. Closing and listing the keys that run is one
// step, so that no request slips in between.
//
// Files, from the outside inwards:
//
//	shell.go       the goroutine: what it does in each turn
//	standing.go    whether the worker is ready and on the ring, what it waits for, how it leaves, and how the store answers
//	placements.go  which partitions do not go by the ring
//	docket.go      which keys may have ended workers
//	agreement.go   whether all members use one store
//	lives.go       the lives of the worker: what their machines are told, and what they order
//	moves.go       which partitions have moved, and which of their keys still run at their former owner
//	moves_log.go   partitions taken over, given away and lost, for the log, and why
//	config.go      what the shell needs: settings, members, store, keys, and locks of members elsewhere; and its state
//	renewals.go    for want of what a session was lost
//	storecalls.go  how calls to the store end
package ownership
