// Package kit has what tests of several packages need.
package kit

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/cluster/proc"
)

// TTL is that of sessions in clusters for tests, unless one asks for another.
const TTL = 10 * time.Second

// Blocking is an app in which requests for /block run until they are released.
type Blocking struct {
	Running atomic.Int64
	Release chan struct{}
}

func (b *Blocking) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/block" {
		b.Running.Add(1)
		<-b.Release
	}
	io.WriteString(rw, "served")
}

// SendRaw sends a request and returns where its answer is to be read.
func SendRaw(t *testing.T, conn net.Conn, path, key string) *bufio.Reader {
	t.Helper()
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: h\r\nX-Key: %s\r\n\r\n", path, key); err != nil {
		t.Fatal(err)
	}
	return bufio.NewReader(conn)
}

// ReadServed reads the answer of a [Blocking] app, and fails the test if it is
// another one.
func ReadServed(t *testing.T, r *bufio.Reader) {
	t.Helper()
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(res.Body); string(body) != "served" {
		t.Errorf("%d %q %v", res.StatusCode, body, err)
	}
}

// Dial connects to the host of a base URL, for a minute at most and not longer
// than the test.
func Dial(t *testing.T, base string) net.Conn {
	t.Helper()
	conn := Must(Connect(base))
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	t.Cleanup(func() { conn.Close() })
	return conn
}

// Connect connects to the host of a base URL, which may be one of HTTPS.
func Connect(base string) (net.Conn, error) {
	scheme, addr, _ := strings.Cut(base, "://")
	if scheme == "https" {
		return tls.Dial("tcp", addr, Untrusted())
	}
	return net.Dial("tcp", addr)
}

// Untrusted takes any certificate.
func Untrusted() *tls.Config { return &tls.Config{InsecureSkipVerify: true} }

// Serve runs serve, a server's method, until the test ends.
func Serve(t testing.TB, server io.Closer, serve func() error) {
	done := make(chan error, 1)
	go func() { done <- serve() }()
	t.Cleanup(func() {
		server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve: %v", err)
		}
	})
}

// Fetch sends a GET request with the given names and values of fields, and
// returns the answer and its body.
func Fetch(t *testing.T, target string, header ...string) (*http.Response, string) {
	t.Helper()
	r := Must(http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil))
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	client := http.DefaultClient
	if r.URL.Scheme == "https" {
		client = Client(t, "HTTP/1.1")
	}
	return send(t, client, r)
}

func send(t testing.TB, c *http.Client, req *http.Request) (*http.Response, string) {
	t.Helper()
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

// KeySources parses specifications of key sources.
func KeySources(t testing.TB, specs ...string) gateway.KeySources {
	t.Helper()
	var out gateway.KeySources
	for _, spec := range specs {
		s, err := gateway.ParseKeySource(spec)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	return out
}

// Client returns a client that speaks HTTP/1.1 or HTTP/2, with connections of
// its own.
func Client(t testing.TB, proto string) *http.Client {
	transport := &http.Transport{Protocols: new(http.Protocols), TLSClientConfig: Untrusted()}
	transport.Protocols.SetHTTP1(proto == "HTTP/1.1")
	transport.Protocols.SetHTTP2(proto == "HTTP/2")
	transport.Protocols.SetUnencryptedHTTP2(proto == "HTTP/2")
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// Do sends a request and returns the answer and its body. It fails the test if
// the client sees a field of Keyway's own.
func Do(t testing.TB, c *http.Client, req *http.Request) (*http.Response, string) {
	t.Helper()
	res, body := send(t, c, req)
	for name := range res.Header {
		if strings.HasPrefix(name, "Keyway-") {
			t.Errorf("the client sees %s: %s", name, res.Header.Get(name))
		}
	}
	return res, body
}

// Eventually waits for a condition, for up to a minute.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("never: %s", what)
		}
	}
}

// NoLeaks fails the test if at its end, after everything registered later was
// cleaned up, more goroutines run than now.
func NoLeaks(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		var now int
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); runtime.Gosched() {
			http.DefaultTransport.(*http.Transport).CloseIdleConnections()
			if now = runtime.NumGoroutine(); now <= before {
				return
			}
		}
		buf := make([]byte, 1<<20)
		t.Errorf("%d goroutines, %d before:\n%s", now, before, buf[:runtime.Stack(buf, true)])
	})
}

// FreeAddr returns an address on which nobody listens.
func FreeAddr(testing.TB) string { return Must(proc.FreeAddr()) }

// Buffer is a [bytes.Buffer] for several goroutines, such as what a logger
// writes to.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// Reset empties the buffer.
func (b *Buffer) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.b.Reset()
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Must returns v, and panics if err is not nil.
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// EmptyPools drops what lies in the program's [sync.Pool]s, now and at the end of a test in a bubble of
// [testing/synctest]: a wait at a pooled channel from outside of the bubble would not count as one.
func EmptyPools(t testing.TB) {
	empty := func() {
		runtime.GC() // moves it aside
		runtime.GC()
	}
	empty()
	t.Cleanup(empty)
}

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
