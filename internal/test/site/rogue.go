package site

import (
	"bytes"
	"fmt"
	"hash/fnv"
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
	h := fnv.New64a()
	n, err := io.Copy(h, r)
	return fmt.Sprintf("%d bytes, %x, %v", n, h.Sum64(), err)
}

// Zeros has no end.
type Zeros struct{}

func (Zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
