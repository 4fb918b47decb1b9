// Package h2 is the server's side of HTTP/2 (RFC 9113), for a proxy that has to
// do it cheaply: of the protocol it knows connections, streams, flow control and
// limits, and of the requests nothing but their form.
//
// One goroutine reads a connection ([Conn.Serve]) and starts a handler for each
// stream, on a goroutine that is used again afterwards. All that is to be sent
// is collected, and whoever finds nobody writing starts a goroutine that writes
// until nothing is left, so one system call carries what many streams have to
// say. A connection without requests holds one goroutine and no buffers. There
// are no timers: whoever owns the connection calls [Conn.Check] at intervals,
// and all times are counted in these.
//
// HPACK is golang.org/x/net's. Its Framer is not used: it keeps a buffer for
// each connection, copies every frame into it, and brings the whole of another
// server and client along.
package h2
