package router_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/site"
)

// interimOf sends a GET, or a POST with a body that has to be streamed, and returns
// the statuses of the answers that came, and all that was said in their heads.
func interimOf(t *testing.T, e entrance, method string) (statuses []int, heads string) {
	t.Helper()
	if e.http2 {
		var got string
		if method == "GET" {
			got = e.send(t, method, "/", nil, "")
		} else {
			got = e.upload(t, "/", "X-Sum", []string{"X-Sum: 1"})
		}
		for line := range strings.SplitSeq(got, "\n") {
			if value, ok := strings.CutPrefix(line, ":status: "); ok {
				var status int
				fmt.Sscan(value, &status)
				statuses = append(statuses, status)
			}
		}
		return statuses, strings.ToLower(got)
	}
	conn := e.dial(t)
	body := "\r\n"
	if method != "GET" {
		body = "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"
	}
	if _, err := io.WriteString(conn, method+" / HTTP/1.1\r\nHost: shop.example\r\nX-Key: k\r\nConnection: close\r\n"+body); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	in := bufio.NewReader(io.TeeReader(conn, &said))
	for {
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("after %v: %v", statuses, err)
		}
		statuses = append(statuses, res.StatusCode)
		if res.StatusCode >= 200 {
			res.Body.Close()
			return statuses, strings.ToLower(said.String())
		}
	}
}

// Interim answers pass on every way, without what only Keyway may say.
func TestInterimAnswersPassOnEveryWay(t *testing.T) {
	app := func(rw http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		h := rw.Header()
		h.Set("Link", "</style.css>")
		h.Set("Keyway-Token", "1")
		rw.WriteHeader(http.StatusEarlyHints)
		rw.WriteHeader(http.StatusProcessing)
		h.Del("Link")
		rw.WriteHeader(http.StatusOK)
	}
	for _, e := range entrances(t, app, nil) {
		t.Run(e.name, func(t *testing.T) {
			for _, method := range []string{"GET", "POST"} {
				statuses, heads := interimOf(t, e, method)
				if got := fmt.Sprint(statuses); got != "[103 102 200]" || strings.Count(heads, "link: </style.css>") < 1 || strings.Contains(heads, "keyway-") {
					t.Errorf("%s: %v\n%s", method, statuses, heads)
				}
			}
		})
	}
}

// A client of HTTP/1.0 would take an interim answer for the answer (RFC 9110, section 15.2).
func TestInterimAnswersAreNotForHTTP10(t *testing.T) {
	app := func(rw http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		rw.WriteHeader(http.StatusEarlyHints)
	}
	linked, _ := throughLink(t, app)
	for _, rt := range []*router.Router{linked, site.NewRouter(t, router.Config{Members: hub.Of(site.NewFake(t, "a", app).Member)})} {
		base, _ := frontOf(t, rt)
		for _, size := range []int{0, 100_000} { // the second one is relayed to a worker without the link
			got := sendRaw(t, base, fmt.Sprintf("POST / HTTP/1.0\r\nHost: h\r\nX-Key: k\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("x", size)))
			if !strings.HasPrefix(got, "200") {
				t.Errorf("%d bytes: %s", size, got)
			}
		}
	}
}

// A worker cannot keep a request waiting with interim answers without end.
func TestInterimAnswersAreBounded(t *testing.T) {
	rt, _ := throughLink(t, func(rw http.ResponseWriter, r *http.Request) {}, func(cfg *router.Config) {
		cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			worker, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			near, far := net.Pipe()
			go endlessInterim(far, worker)
			return near, nil
		}
	})
	for _, e := range routerEntrancesOf(t, "rogue worker", rt) {
		t.Run(e.name, func(t *testing.T) {
			statuses, heads := interimOf(t, e, "GET")
			if n := len(statuses); n > 9 || statuses[n-1] != http.StatusBadGateway {
				t.Errorf("%v\n%s", statuses, heads)
			}
		})
	}
}

// endlessInterim speaks the link as a worker that lets a real one say hello, and
// answers requests with 103 again and again.
func endlessInterim(conn, worker net.Conn) {
	defer conn.Close()
	defer worker.Close()
	const preface, frame = 8, 12
	passHello := func(to, from net.Conn) bool {
		head := make([]byte, preface+frame)
		if _, err := io.ReadFull(from, head); err != nil {
			return false
		}
		_, err := to.Write(head)
		if err == nil {
			_, err = io.CopyN(to, from, int64(binary.BigEndian.Uint32(head[preface:])>>8))
		}
		return err == nil
	}
	if !passHello(worker, conn) || !passHello(conn, worker) {
		return
	}
	for {
		request := make([]byte, frame)
		if _, err := io.ReadFull(conn, request); err != nil {
			return
		}
		if _, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(request)>>8)); err != nil {
			return
		}
		if request[3]&0x7f != 2 {
			continue
		}
		go func() {
			interim := append([]byte{0, 0, 2, 3}, request[4:]...)
			for {
				if _, err := conn.Write(append(interim, http.StatusEarlyHints, 0)); err != nil {
					return
				}
			}
		}()
	}
}
