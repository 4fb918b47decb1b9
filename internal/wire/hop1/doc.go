// Package hop1 sends requests to one server over pooled HTTP/1.1 connections,
// for a proxy: it does what http.Transport does there at a fraction of the
// cost. A request is written in one piece by the goroutine that also reads its
// answer; there are no goroutines of a connection's own. A connection that has
// lain in the pool is looked at before it is written to, and a request of
// which anything may have left is never written again: errors wrap ErrNotSent
// where the caller may send it elsewhere.
package hop1
