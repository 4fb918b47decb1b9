package routertest

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

// LinkWorker is a worker that takes the link and does with requests what it
// likes.
func LinkWorker(t *testing.T, h link.HandlerFunc) ring.Member {
	t.Helper()
	l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))
	s := &link.Server{Handler: h, Config: link.Config{Cluster: "keyway", Digest: ring.Settings{TTL: kit.TTL}.Digest()}}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	m := Member("rogue", l.Addr().String())
	m.Link = true
	return m
}

// RogueConn is a router's connection to a worker on which bytes are replaced.
type RogueConn struct {
	net.Conn
	Asked, Answered [2]string // what is replaced by what of the same length
}

func (c *RogueConn) Write(b []byte) (int, error) {
	return c.Conn.Write(bytes.ReplaceAll(b, []byte(c.Asked[0]), []byte(c.Asked[1])))
}

func (c *RogueConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	copy(b, bytes.ReplaceAll(b[:n], []byte(c.Answered[0]), []byte(c.Answered[1])))
	return n, err
}

// Sum returns what tells a body apart.
func Sum(r io.Reader) string {
	n, sum := 0, uint64(14695981039346656037)
	buf := make([]byte, 32<<10)
	for {
		k, err := r.Read(buf)
		for _, b := range buf[:k] {
			sum = (sum ^ uint64(b)) * 1099511628211
		}
		n += k
		if err != nil {
			return fmt.Sprintf("%d bytes, %x, %v", n, sum, err)
		}
	}
}

// Zeros has no end.
type Zeros struct{}

func (Zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
