package gateway

// Headers that router, worker and app exchange. Whatever a client or an app
// sends under the prefix Keyway- is dropped, so that these can be trusted as
// far as the network between router and worker can.
const (
	HeaderKey       = "Keyway-Key"       // to worker and app: the key, percent-encoded; in an app's answer: the key that it worked on
	HeaderEpoch     = "Keyway-Epoch"     // to worker: highest epoch the router knows; to app: the epoch of this execution; in a refusal: the owner's
	HeaderToken     = "Keyway-Token"     // to app: the fencing token of this execution
	HeaderPartition = "Keyway-Partition" // to app: the key's partition
)
