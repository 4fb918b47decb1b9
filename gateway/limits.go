package gateway

import "time"

// Limits are what a router.Router and a client.Client have in common of waits, memory and connections
// to workers. A number or a duration of 0 stands for the default; a negative one is an
// error of router.New and client.New.
type Limits struct {
	// Hold is how long a request, or a call for a key, waits while its partition has no
	// reachable owner. Default 15 s. With NoHold it fails at once.
	Hold   time.Duration
	NoHold bool

	// MaxHeld bounds the requests and calls that wait so at one time; more fail at once.
	// Default 10,000.
	MaxHeld int

	// ReplayBytes bounds what of bodies is in memory: up to 64 KiB of each, of which
	// the first 4 KiB do not count if the body is not longer than 64 KiB. A client of a
	// Router (an IPv4 address, or an IPv6 network of 64 bits) may use a quarter of
	// ReplayBytes. What exceeds it goes to temporary files. Default 64 MiB.
	ReplayBytes int

	// MaxBody is how many bytes a body may have, unless it is one of gRPC (worker.App.GRPC)
	// or, in a Client, of a request with GetBody. A Router answers a longer one with 413; if
	// that announces its length, before anything is read of it. Default 1 GiB.
	MaxBody int64

	// BodyFiles bounds the bytes of temporary files with what of bodies is not in
	// memory. A client of a Router may use a quarter of it; what exceeds it is answered
	// with 503, and is an error of a Client.
	// Default: 4 GiB, or half of what is free in BodyDir if that is less.
	BodyFiles int64

	// BodyDir is where temporary files are. They have no name. Default:
	// [os.TempDir]; if no file can be made there, bodies are in memory only, as far
	// as ReplayBytes allows.
	BodyDir string

	// ConnsPerWorker bounds the connections to one worker other than links: one
	// for each upgrade while its protocols speak, and one for each request to a
	// worker that does not take the link. What exceeds it waits for 5 s, and
	// fails then with 503. Default 4096.
	ConnsPerWorker int

	// LinksPerWorker bounds the links to one worker. Another one is made when
	// the others carry half of what the worker takes on them
	// (worker.Limits.StreamsPerLink), and closed when it has carried nothing for
	// 30 s. When all are full, requests for the worker fail at once with 503.
	// Default 4.
	LinksPerWorker int

	// DialTimeout bounds connecting to a worker. Default 1 s.
	DialTimeout time.Duration
}
