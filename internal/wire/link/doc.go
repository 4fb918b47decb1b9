// Package link carries HTTP requests between a router and a worker over few
// long-lived connections.
//
// Requests and responses of all clients share a connection as frames. One goroutine per connection
// writes all queued frames with a single system call, and a lone frame at once. Under load this
// saves most of the system calls of a pooled HTTP/1.1 connection. Bodies and trailers stream both
// ways. Each stream has its own window, so a slow one does not block the others. Either side can
// cancel, a deadline travels with the request, and pings detect a silent peer.
//
// The link tells its user whether a request may be retried: ErrNotStarted means that it provably
// did not start. This is so if its bytes never reached the kernel, if the worker drains and says
// so, or if the worker refused it (RefusedError). A worker can refuse only before it lets the
// client send more of the body than the Request keeps for another attempt. Refusals are frames of
// their own, so an application's answer cannot be mistaken for one.
//
// Client is the router's end, Server the worker's. Handler is the interface
// without net/http types; HTTPHandler and ServeHTTP run an http.Handler
// unchanged. Split lets one listener take links and plain HTTP/1.1.
//
// docs/link.md specifies the protocol.
package link
