package kit

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
)

// GreetH2 sends what an HTTP/2 client sends first.
func GreetH2(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+H2Frame(4, 0, 0, "")+H2Frame(4, 1, 0, "")); err != nil {
		t.Fatal(err)
	}
}

// H2Frame makes a frame.
func H2Frame(kind, flags byte, stream uint32, payload string) string {
	b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return string(binary.BigEndian.AppendUint32(b, stream)) + payload
}
