// Package hop1 sends requests to one server over pooled HTTP/1.1 connections,
// for a proxy: it does what http.Transport does there at a fraction of the
// cost. An [Exchange] writes a request in one piece by the goroutine that also
// reads its answer; [Pool.RoundTrip] streams bodies and changes protocols, over
// the same connections. A connection that has lain in the pool is looked at
// before it is written to, and a request of which anything may have left is
// never written again: errors wrap ErrNotSent where the caller may send it
// elsewhere.
package hop1
