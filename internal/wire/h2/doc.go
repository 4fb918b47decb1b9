// Package h2 is the server's side of HTTP/2 (RFC 9113) for a proxy, which needs it cheap. It
// handles connections, streams, flow control, limits, and the form of requests, but not their
// meaning.
//
// One goroutine reads a connection ([Conn.Serve]) and starts a handler for each stream on a reused
// goroutine. Frames to send are collected. The first goroutine that finds no writer starts one,
// which writes until nothing is left, so one system call carries the frames of many streams. A
// connection without requests holds one goroutine and no buffers. There are no timers: the
// connection's owner calls [Conn.Check] at intervals, and all times are counted in these.
//
// HPACK is golang.org/x/net's. Its Framer is not used: it keeps a buffer for
// each connection, copies every frame into it, and brings the whole of another
// server and client along.
package h2
