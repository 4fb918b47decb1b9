// Package send carries requests to the workers of a cluster and their answers back. Routers
// and clients share it; it knows neither.
//
// [Options] is the common part of their configurations. [Options.Open] makes the [Workers], which
// know the owner of each key and keep connections to each worker (a [Peer]). It also makes the
// [spool.Pool] of memory and files for bodies. A [Dispatch] is one request on its way over the link
// or, to workers without it, over HTTP/1.1. Its [Destination] says where it goes, and its [Answer] is
// the result.
// An [OwnerCall] asks the owner of a key about holds. Both make attempts as package routing finds
// workers. [OutcomeOf] says whether another attempt may follow a failed one.
//
// Files, from the caller inwards: options.go, workers.go, dispatch.go, plain.go, general.go,
// owner_call.go. Then peers.go has the connections, and bodies.go and reservation.go the memory of bodies.
// errors.go classes failures for callers; progress.go records what happens on the way.
package send
