package gateway

import "time"

// Limits bound waits, memory and connections to workers of a router.Router or a client.Client. A
// number or a duration of 0 stands for the default; a negative one is an error of router.New and
// client.New.
type Limits struct {
	// Hold is how long a request, or a call for a key, waits while its partition has no
	// reachable owner. Default 15 s. With NoHold it fails at once.
	Hold   time.Duration
	NoHold bool

	// MaxHeld bounds the requests and calls that wait this way at one time; more fail at once.
	// Default 10,000.
	MaxHeld int

	// ReplayBytes bounds the memory for bodies. Each body may have up to 64 KiB in memory; if it is
	// no longer than that, its first 4 KiB do not count. A client of a Router (an IPv4 address, or
	// an IPv6 network of 64 bits) may use a quarter of ReplayBytes. Anything beyond these bounds
	// goes to temporary files. The fields of a request to a Router over HTTP/2 count if they have more
	// than 4 KiB, and the request is refused if there is no room. Default 64 MiB.
	ReplayBytes int

	// MaxBody bounds the bytes of a body, except those of gRPC (worker.App.GRPC). A Router answers
	// 413 to a longer one; if its length is announced, before it reads any of it. Default 1 GiB.
	MaxBody int64

	// BodyFiles bounds the bytes of temporary files for parts of bodies that are not in memory. A
	// client of a Router may use a quarter of it. Beyond it, a Router answers 503, and a Client
	// returns an error. Default: 4 GiB, or half of the free space in BodyDir if that is less.
	BodyFiles int64

	// BodyDir is the directory of the temporary files, which have no names. Default: [os.TempDir].
	// If no file can be made there, bodies are kept in memory only, up to ReplayBytes.
	BodyDir string

	// ConnsPerWorker bounds the connections to one worker other than links: one for each upgraded
	// connection, and one for each request to a worker that does not take the link. A request
	// beyond it waits for 5 s, and then fails with 503. Default 4096.
	ConnsPerWorker int

	// DialTimeout bounds connecting to a worker. Default 1 s.
	DialTimeout time.Duration
}
