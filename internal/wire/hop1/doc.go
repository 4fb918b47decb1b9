// Package hop1 sends requests to one server over pooled HTTP/1.1 connections,
// for a proxy: it does what http.Transport does there at a fraction of the
// cost. An [Exchange] writes a request in one piece by the goroutine that also
// reads its answer; [Pool.RoundTrip] streams bodies and changes protocols, over
// the same connections. A connection that has lain in the pool is looked at
// before it is written to. A request of which anything may have left is written
// again only if the server had provably closed the connection before; errors wrap
// ErrNotStarted where the caller may send it elsewhere.
package hop1
