// Package keyed admits executions of keys, runs them and frees their keys, at one worker. It knows
// neither HTTP nor the store: it is told who owns a partition, and reports to its [Owner] what
// concerns ownership.
//
// An execution waits for its key, runs, and ends. The partition's keyed mutex grants keys in the order of
// arrival. The lease is compared before and after the wait, as it may have run out
// meanwhile. A call that would wait for itself or close a cycle of waits is refused. A running
// execution is cancelled when its worker may no longer own the key, or when its time is over.
//
// Files, from the outside inwards:
//
//	admit.go      how a caller gets a key, and gives it back
//	baggage.go    the keys that are held along a chain of calls, as requests carry them
//	slow.go       keys that are held or waited for long
//	deadlock.go   callers that would wait for each other for ever
//	stream.go     an answer that goes on while its request holds no key
//	execution.go  an execution and its context: who runs within it, and what ends it
//	keys.go       the keys of all partitions, and of one: open or closed, what runs, and who else owns it
//	rate.go       how often a key may be had
//	hot.go        keys that are asked for most
//	load.go       what each partition costs
//	asking.go     how a caller asks for a key: as a request of some route, or as a call
//	counts.go     what is counted
package keyed
