package router_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// A request that has both lengths, or chunks in HTTP/1.0, is answered with 400
// and its connection closed, the first one on it and a later one, wherever
// HTTP/1.1 is taken.
func TestAmbiguousFraming(t *testing.T) {
	app := func(rw http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }
	rt, _ := throughLink(t, app)
	own := site.New(t, 16).StartReady(func(cfg *worker.Config) { cfg.Direct = true })
	front, _ := frontOf(t, rt)
	secure := kit.Must(net.Listen("tcp", "127.0.0.1:0"))
	cert, key, trusted := kit.Certificate(t)
	f := site.ServeRouter(t, rt, kit.Must(net.Listen("tcp", "127.0.0.1:0")))
	done := make(chan error, 1)
	go func() { done <- f.ServeTLS(secure, cert, key) }()
	t.Cleanup(func() { secure.Close(); <-done })

	plain := func(addr string) func() net.Conn {
		return func() net.Conn { return kit.Must(net.Dial("tcp", addr)) }
	}
	ways := map[string]func() net.Conn{
		"front":  plain(strings.TrimPrefix(front, "http://")),
		"worker": plain(own.Listen(t, own.Handler(http.HandlerFunc(app)))),
		"TLS": func() net.Conn {
			return kit.Must(tls.Dial("tcp", secure.Addr().String(), &tls.Config{RootCAs: trusted}))
		},
	}
	head := func(lines ...string) string {
		return strings.Join(append(lines, "Host: h", "X-Key: k", "Keyway-Key: k", "", ""), "\r\n")
	}
	plainly := head("POST / HTTP/1.1", "Content-Length: 4") + "body"
	chunked := head("POST / HTTP/1.1", "Transfer-Encoding: chunked") + "4\r\nbody\r\n0\r\n\r\n"
	bad := map[string]string{
		"both lengths":       head("POST / HTTP/1.1", "Content-Length: 4", "Transfer-Encoding: chunked") + "0\r\n\r\n",
		"chunks in HTTP/1.0": head("POST / HTTP/1.0", "Connection: keep-alive", "Transfer-Encoding: chunked") + "0\r\n\r\n",
	}
	for way, dial := range ways {
		for what, request := range bad {
			for _, before := range [][]string{nil, {plainly}, {chunked}, {plainly, chunked, plainly}} {
				t.Run(fmt.Sprintf("%s, %s after %d", what, way, len(before)), func(t *testing.T) {
					conn := dial()
					defer conn.Close()
					_ = conn.SetDeadline(time.Now().Add(time.Minute))
					answers := bufio.NewReader(conn)
					for _, r := range append(before, request) {
						_, _ = io.WriteString(conn, r)
						res, err := http.ReadResponse(answers, nil)
						if err != nil {
							t.Fatal(err)
						}
						want := http.StatusOK
						if r == request {
							want = http.StatusBadRequest
						}
						if res.StatusCode != want {
							t.Fatalf("%q: %s, want %d", r, res.Status, want)
						}
						_, _ = io.Copy(io.Discard, res.Body)
					}
					_, _ = io.WriteString(conn, plainly)
					if res, err := http.ReadResponse(answers, nil); err == nil {
						t.Errorf("the connection goes on: %s", res.Status)
					}
				})
			}
		}
	}
}
