package gateway

// Headers that router, worker and app exchange. All fields with the prefix Keyway- from clients and
// apps are dropped, so these are as trustworthy as the network between router and worker.
const (
	HeaderKey       = "Keyway-Key"       // to worker and app: the key, percent-encoded; in an app's answer: the key that it worked on
	HeaderEpoch     = "Keyway-Epoch"     // to worker: highest epoch the router knows; to app: the epoch of this execution; in a refusal: the owner's
	HeaderToken     = "Keyway-Token"     // to app: the fencing token of this execution
	HeaderPartition = "Keyway-Partition" // to app: the key's partition
)
