// Package hop1 sends requests to one server over pooled HTTP/1.1 connections. For a proxy it does
// the work of http.Transport at a fraction of the cost. An [Exchange] writes a request in one piece
// on the goroutine that also reads its answer; [Pool.RoundTrip] streams bodies and changes
// protocols over the same connections. A pooled connection is checked before a request is written
// to it. A request that may have left in part is written again only if the server had provably
// closed the connection before. Errors wrap ErrNotStarted where the caller may send the request
// elsewhere.
package hop1
