package websocket

import (
	"crypto/rand"
	"crypto/sha1"
	"encoding/base64"
)

// NewKey returns a value for the field Sec-WebSocket-Key of a request (RFC 6455,
// section 4.1).
func NewKey() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // which does not fail
	return base64.StdEncoding.EncodeToString(b[:])
}

// Accept returns the value of the field Sec-WebSocket-Accept in the answer to a
// request with that key (RFC 6455, section 4.2.2).
func Accept(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}
