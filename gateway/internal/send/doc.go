// Package send carries requests to the workers of a cluster and their answers back. Routers
// and clients share it; it knows neither.
//
// [Options] are what their configurations have in common. [Options.Open] makes of them the
// [Workers], which know the owner of each key and keep the connections to each worker (a
// [Peer]), and the [Budget] of memory and files for bodies. A [Dispatch] is one request on
// its way, over the link or, to workers that do not take it, over HTTP/1.1; its [Destination]
// says where it goes, and its [Answer] is what came back. A [Relay] carries what only
// net/http's form of HTTP/1.1 can: upgrades, and bodies that are streamed or large. An
// [OwnerCall] asks the owner of a key about holds. Each of them makes attempts as package
// routing finds workers; [OutcomeOf] says of an attempt that has failed whether another one
// may follow.
//
// Files, from the caller inwards: options.go, workers.go, dispatch.go, plain.go, relay.go and
// owner_call.go; peers.go has the connections; bodies.go and budget.go what a body takes;
// errors.go what goes wrong, and how callers class it; progress.go and spans.go what is noted
// on the way.
package send
