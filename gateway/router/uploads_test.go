package router_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// Nobody is asked for the key before the whole body is there, and another request for
// the key is not held up by one whose body does not come.
func TestTrapASlowUploadHoldsNoKey(t *testing.T) { eachWay(t, testASlowUploadHoldsNoKey) }

func testASlowUploadHoldsNoKey(t *testing.T, front way) {
	const size = 300_000
	for kind, rt := range workerKinds(t, func(rw http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(rw, r.Method, " ", n, err)
	}, func(c *router.Config) { c.BodyDir = t.TempDir() }) {
		for _, known := range []bool{true, false} {
			t.Run(fmt.Sprint(kind, ", length known: ", known), func(t *testing.T) {
				s := front(t, rt)
				body, w := io.Pipe()
				slow := kit.Must(http.NewRequestWithContext(t.Context(), "POST", s.URL, body))
				slow.Header.Set("X-Key", "k")
				if known {
					slow.ContentLength = size
				}
				answered := make(chan string, 1)
				go func() {
					res, err := s.HTTP.Do(slow)
					if err != nil {
						answered <- err.Error()
						return
					}
					defer res.Body.Close()
					text, _ := io.ReadAll(res.Body)
					answered <- string(text)
				}()
				if _, err := w.Write(make([]byte, size-1)); err != nil {
					t.Fatal(err)
				}
				kit.Eventually(t, "what has come is in memory and in a file", func() bool {
					return rt.Stats().BodyBytes == 64<<10 && rt.Stats().BodyFiles > 0
				})
				if _, text := site.Get(t, s, "k"); text != "GET 0 <nil>" {
					t.Errorf("a request that came meanwhile: %q", text)
				}
				select {
				case text := <-answered:
					t.Errorf("answered before the body was there: %q", text)
				default:
				}
				if _, err := w.Write(make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
				w.Close()
				if text := <-answered; text != fmt.Sprint("POST ", size, " <nil>") {
					t.Errorf("answered %q", text)
				}
				kit.Eventually(t, "nothing is kept", func() bool { return rt.Stats().BodyBytes+rt.Stats().BodyFiles == 0 })
			})
		}
	}
}

// The app gets the same bytes of a body that is larger than anything in memory, its
// length, and the trailers. No file is left.
func TestLargeUploads(t *testing.T) { eachWay(t, testLargeUploads) }

func testLargeUploads(t *testing.T, front way) {
	const size = 6 << 20
	before := openFiles(t)
	for kind, rt := range workerKinds(t, func(rw http.ResponseWriter, r *http.Request) {
		text := site.Sum(r.Body)
		fmt.Fprint(rw, r.ContentLength, " ", text, r.Trailer)
	}, func(c *router.Config) { c.BodyDir = t.TempDir() }) {
		for _, trailer := range []http.Header{nil, {"X-Check": {"sum"}}} {
			s := front(t, rt)
			req := kit.Must(http.NewRequestWithContext(t.Context(), "PUT", s.URL, io.LimitReader(site.Zeros{}, size)))
			req.Trailer = trailer
			req.Header.Set("X-Key", "k")
			length := int64(size)
			if trailer != nil {
				length = -1 // only a chunked body has them in HTTP/1.1
			}
			want := fmt.Sprint(length, " ", site.Sum(io.LimitReader(site.Zeros{}, size)), trailer)
			if res, got := kit.Do(t, s.HTTP, req); got != want {
				t.Errorf("%s: %d, the app got %s, want %s", kind, res.StatusCode, got, want)
			}
			kit.Eventually(t, "nothing is kept", func() bool { return rt.Stats().BodyBytes+rt.Stats().BodyFiles == 0 })
		}
	}
	kit.Eventually(t, "no file is left", func() bool { return openFiles(t) <= before })
}

// openFiles counts the process's descriptors of files that have no name any more; 0
// where they are not to be seen.
func openFiles(t *testing.T) (n int) {
	t.Helper()
	all, _ := filepath.Glob("/proc/self/fd/*")
	for _, fd := range all {
		if name, err := os.Readlink(fd); err == nil && strings.HasSuffix(name, "(deleted)") {
			n++
		}
	}
	return n
}

// A request with a large body waits for an owner, and goes to it when it has come.
func TestLargeUploadIsHeld(t *testing.T) {
	const size = 1 << 20
	var hits atomic.Int64
	a := site.NewFake(t, "a", func(rw http.ResponseWriter, r *http.Request) {
		if hits.Add(1) <= 3 {
			site.Refuse("unavailable", 503)(rw, r)
			return
		}
		io.WriteString(rw, site.Sum(r.Body))
	})
	rt := site.NewRouter(t, router.Config{Members: hub.Of(a.Member)})
	s := site.ThroughServer(t, rt)
	req := kit.Must(http.NewRequestWithContext(t.Context(), "POST", s.URL, io.LimitReader(site.Zeros{}, size)))
	req.Header.Set("X-Key", "k")
	res, text := kit.Do(t, s.HTTP, req)
	if want := site.Sum(io.LimitReader(site.Zeros{}, size)); text != want || rt.Stats().Held != 1 {
		t.Errorf("%d, the app got %s, want %s; %d requests were held", res.StatusCode, text, want, rt.Stats().Held)
	}
}

// What is too large, and what there is no room for, is refused and not sent to anybody.
func TestBodiesThatAreNotTaken(t *testing.T) { eachWay(t, testBodiesThatAreNotTaken) }

func testBodiesThatAreNotTaken(t *testing.T, front way) {
	for _, tt := range []struct {
		name   string
		change func(c *router.Config)
		size   int
		want   int
	}{
		{"as long as may be", func(c *router.Config) { c.MaxBody = 200_000 }, 200_000, 200},
		{"too long", func(c *router.Config) { c.MaxBody = 200_000 }, 200_001, 413},
		{"small, as long as may be", func(c *router.Config) { c.MaxBody = 1000 }, 1000, 200},
		{"small, too long", func(c *router.Config) { c.MaxBody = 1000 }, 1001, 413},
		{"a quarter of the files", func(c *router.Config) { c.BodyFiles = 4_000_000 }, 1_000_000, 200},
		{"more than a quarter", func(c *router.Config) { c.BodyFiles = 4_000_000 }, 1_500_000, 503},
		{"small, no room at all", func(c *router.Config) { c.ReplayBytes, c.BodyFiles = 1, 1 }, 50_000, 503},
	} {
		for _, known := range []bool{true, false} {
			t.Run(fmt.Sprint(tt.name, ", length known: ", known), func(t *testing.T) {
				s, rt, w := route(t, front, func(rw http.ResponseWriter, r *http.Request) { io.WriteString(rw, site.Sum(r.Body)) }, tt.change)
				var body io.Reader = bytes.NewReader(make([]byte, tt.size))
				if !known {
					body = io.MultiReader(body)
				}
				req := kit.Must(http.NewRequestWithContext(t.Context(), "POST", s.URL, body))
				req.Header.Set("X-Key", "k")
				res, err := s.HTTP.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				hits := int64(0)
				if tt.want == 200 {
					hits = 1
				}
				if res.StatusCode != tt.want || w.Hits.Load() != hits || (res.Header.Get("Retry-After") != "") != (tt.want == 503) {
					t.Errorf("%d after %d requests, %v; want %d after %d", res.StatusCode, w.Hits.Load(), res.Header, tt.want, hits)
				}
				kit.Eventually(t, "nothing is kept", func() bool { return rt.Stats().BodyBytes+rt.Stats().BodyFiles == 0 })
			})
		}
	}
}

// A length that is too large is answered at once, and the connection closed: nothing
// of the body is read, nor asked for.
func TestTooLargeLengthIsAnsweredAtOnce(t *testing.T) {
	for name, way := range map[string]way{"server": throughNetHTTP, "front": site.ThroughServer} {
		for _, expect := range []string{"", "Expect: 100-continue\r\n"} {
			t.Run(name+" "+expect, func(t *testing.T) {
				s, _, w := route(t, way, site.Answer("a"), func(c *router.Config) { c.MaxBody = 100_000 })
				c := kit.Must(kit.Connect(s.URL))
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(time.Minute))
				fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: h\r\nX-Key: k\r\n%sContent-Length: 100001\r\n\r\n", expect)
				in := bufio.NewReader(c)
				res, err := http.ReadResponse(in, nil)
				if err != nil || res.StatusCode != 413 || !res.Close || w.Hits.Load() != 0 {
					t.Fatalf("%v, %v, %d requests at the worker", res, err, w.Hits.Load())
				}
				io.Copy(io.Discard, res.Body)
				if b, err := in.ReadByte(); err == nil || isTimeout(err) {
					t.Errorf("the connection goes on with %q, %v", b, err)
				}
			})
		}
	}
}

// Who waits to be asked for a body is asked when the router reads it.
func TestExpectedBodiesAreAskedFor(t *testing.T) { eachWay(t, testExpectedBodies) }

func testExpectedBodies(t *testing.T, front way) {
	s, _, _ := route(t, front, func(rw http.ResponseWriter, r *http.Request) {
		io.WriteString(rw, site.Sum(r.Body))
	})
	transport := &http.Transport{ExpectContinueTimeout: time.Minute, TLSClientConfig: kit.Untrusted(), Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(!s.HTTP2)
	transport.Protocols.SetUnencryptedHTTP2(s.HTTP2)
	defer transport.CloseIdleConnections()
	for _, size := range []int{10, 1 << 20} {
		req := kit.Must(http.NewRequestWithContext(t.Context(), "POST", s.URL, bytes.NewReader(make([]byte, size))))
		req.Header.Set("X-Key", "k")
		req.Header.Set("Expect", "100-continue")
		if _, text := kit.Do(t, &http.Client{Transport: transport}, req); text != site.Sum(bytes.NewReader(make([]byte, size))) {
			t.Errorf("%d bytes: the app got %s", size, text)
		}
	}
}

// A disk that takes nothing is no reason to send half a body.
func TestADiskThatFails(t *testing.T) {
	var log kit.Buffer
	dir := filepath.Join(t.TempDir(), "bodies")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s, _, w := route(t, site.ThroughServer, site.Answer("a"), func(c *router.Config) {
		c.BodyDir, c.Logger = dir, slog.New(slog.NewTextHandler(&log, nil))
	})
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	for size, want := range map[int]int{100: 200, 100_000: 503} {
		w.Hits.Store(0)
		req := kit.Must(http.NewRequestWithContext(t.Context(), "POST", s.URL, bytes.NewReader(make([]byte, size))))
		req.Header.Set("X-Key", "k")
		if res, _ := kit.Do(t, s.HTTP, req); res.StatusCode != want || w.Hits.Load() > 0 != (want == 200) {
			t.Errorf("%d bytes: %d after %d requests, want %d", size, res.StatusCode, w.Hits.Load(), want)
		}
	}
	if !strings.Contains(log.String(), "temporary file") {
		t.Errorf("the log says nothing of it: %s", &log)
	}
}
