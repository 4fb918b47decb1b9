// Package calls is what operators ask of workers by way of routers: calls over the
// link (docs/link.md), which are taken from members only. All of them may be repeated.
package calls

// Methods of the calls. Those that do not succeed are answered with a status that is not
// 200 and a line of text.
const (
	Status  = ":status"  // answered with a status.WorkerStatus in JSON
	Explain = ":explain" // for the key of the link's request; answered with a status.KeyStatus in JSON
	Load    = ":load"    // answered with a status.Loads in JSON
	Locks   = ":locks"   // of a worker, after the key of the link's request if it has one; answered with a status.LockPage in JSON
	Unlock  = ":unlock"  // for the key of the link's request, with the name of whoever wants it; answered with a list of status.LockRow in JSON, or 404
	Pardon  = ":pardon"  // for the key of the link's request, whose quarantine ends, with the name of whoever wants it; answered with nothing, or 404
	Accuse  = ":accuse"  // with keys that were under way at a worker that has died, in package suspects' form; answered with nothing
	Drain   = ":drain"   // answered when the worker is off the ring and nothing runs there
	Undrain = ":undrain" // answered with nothing
	Place   = ":place"   // with a partition, a space, and the name of the worker that should own it or nothing; answered with nothing
)

// MaxAnswer is the length of the longest answer, in bytes.
const MaxAnswer = 256 << 10
