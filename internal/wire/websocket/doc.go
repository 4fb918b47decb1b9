// Package websocket follows the frames of WebSocket (RFC 6455) that pass through a
// gateway, so that the gateway can end a connection between two of them with a
// close frame of its own. [Frames] says where one frame ends, and [Conn] is a
// client's connection that is told to go away. What is in the frames concerns
// only the client and the app.
package websocket
