// Package websocket follows WebSocket frames (RFC 6455) through a gateway, which can then end a
// connection between two frames with a close frame of its own. [Frames] finds the ends of frames,
// and [Conn] is a client's connection that can be told to go away. The payload is not examined.
package websocket
