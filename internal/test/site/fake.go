package site

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/keyway-go/keyway/gateway/client"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

// Member makes a member of the address of a test server.
func Member(name, addr string) ring.Member {
	return ring.Member{Name: name, Incarnation: name + "-life", Role: ring.RoleWorker, State: ring.StateActive, Addr: strings.TrimPrefix(addr, "http://")}
}

// Leaving returns the member in that state.
func Leaving(m ring.Member) ring.Member {
	m.State = ring.StateLeaving
	return m
}

// Fake stands in for a worker over TCP. Tests can change its handler.
type Fake struct {
	ring.Member
	*httptest.Server
	handler atomic.Pointer[http.HandlerFunc]
	Hits    atomic.Int64
}

// NewFake starts a stand-in that answers with h until the test ends.
func NewFake(t testing.TB, name string, h http.HandlerFunc) *Fake {
	w := &Fake{}
	w.handler.Store(&h)
	w.Server = Serve(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.Hits.Add(1)
		(*w.handler.Load())(rw, r)
	}))
	w.Member = Member(name, w.URL)
	return w
}

// Set replaces the handler.
func (w *Fake) Set(h http.HandlerFunc) { w.handler.Store(&h) }

// Answer makes a handler that answers with text.
func Answer(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) }
}

// NotOwner refuses as a worker does that knows the owner.
func NotOwner(owner ring.Member, epoch int64) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Keyway-Refused", "not-owner")
		h.Set("Keyway-Owner", owner.Incarnation)
		h.Set("Keyway-Owner-Addr", owner.Addr)
		h.Set("Keyway-Epoch", strconv.FormatInt(epoch, 10))
		http.Error(w, "not the owner", http.StatusMisdirectedRequest)
	}
}

// Refuse refuses without naming an owner.
func Refuse(why string, status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Keyway-Refused", why)
		http.Error(w, why, status)
	}
}

// LinkWorker is a worker that takes the link and does with requests what it likes.
func LinkWorker(t *testing.T, h link.HandlerFunc) ring.Member {
	t.Helper()
	l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))
	return serveLink(t, l, l.Addr().String(), h)
}

// ClientOf returns a client in a bubble, whose only worker answers calls as h does.
func ClientOf(t *testing.T, h link.HandlerFunc) *client.Client {
	n := new(Network)
	m := serveLink(t, n.Listen("rogue"), "rogue", h)
	return NewClient(t, client.Config{Members: hub.Of(m), Dial: n.Dial})
}

func serveLink(t *testing.T, l net.Listener, addr string, h link.HandlerFunc) ring.Member {
	s := &link.Server{Handler: h, Config: link.Config{Cluster: "keyway", Digest: ring.Settings{TTL: kit.TTL}.Digest()}}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	m := Member("rogue", addr)
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
