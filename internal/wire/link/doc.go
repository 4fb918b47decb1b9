// Package link carries HTTP requests between a router and a worker over few
// long-lived connections.
//
// Requests and responses of all clients share a connection as frames. One
// goroutine per connection writes whatever frames have been queued with a
// single system call, and a lone frame at once: under load this removes most
// of the system calls that a pooled HTTP/1.1 connection costs. Bodies and
// trailers stream both ways; each stream has its own window, so a slow one
// holds up nobody else. Either side can cancel, a deadline travels with the
// request, and a silent peer is found out by pings.
//
// The link tells its user what a retry has to know: whether a request
// provably did not start (ErrNotStarted). It did not if its bytes never
// reached the kernel, if the worker drains and says so, or if the worker
// itself refused it (RefusedError), which the worker can only do before it
// lets the client send more of the body than the Request keeps for another
// attempt. Refusals are frames of their own: nothing that an application
// answers can be mistaken for one.
//
// Client is the router's end, Server the worker's. Handler is the interface
// without net/http types; HTTPHandler and ServeHTTP run an http.Handler
// unchanged. Split lets one listener take links and plain HTTP/1.1.
//
// docs/link.md specifies the protocol.
package link
