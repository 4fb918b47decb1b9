package link

import (
	"bufio"
	"bytes"
	"io"
	"net"

	"github.com/keyway-go/keyway/internal/wire/sock"
)

// carrier is a connection below TLS. [tls.Conn] reads the head of each record by itself
// and hides the socket from this package: the carrier reads what is there at once.
type carrier struct {
	net.Conn
	in  *bufio.Reader
	out io.Writer
}

// carry wraps nc for TLS. The bytes in ahead, which were read from nc before, are read first.
func carry(nc net.Conn, ahead []byte) net.Conn {
	s := sock.NewStream(nc)
	in := io.Reader(s)
	if len(ahead) > 0 {
		in = io.MultiReader(bytes.NewReader(ahead), s)
	}
	return &carrier{nc, bufio.NewReaderSize(in, 32<<10), s}
}

func (c *carrier) Read(p []byte) (int, error)  { return c.in.Read(p) }
func (c *carrier) Write(p []byte) (int, error) { return c.out.Write(p) }

// NetConn returns the connection below.
func (c *carrier) NetConn() net.Conn { return c.Conn }
