//go:build linux

package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/keyway-go/keyway/loadtest/internal/resource"
)

// audience is an owner that asks again, up to most times.
type audience struct {
	session session
	most    int
	results []string
}

func (a *audience) answered(_ time.Duration, status int, length int64, body []byte) {
	a.results = append(a.results, fmt.Sprint(length, " bytes, ", statusOf(status, body)))
	a.ask()
}

func (a *audience) ask() {
	if a.most--; a.most >= 0 {
		a.session.send(newRequests(&Config{HTTP2: isH2(a.session), Mix: Mix{Keys: 1, Path: "/x"}}).raw[0], 0)
	}
}

func isH2(s session) bool { _, ok := s.(*h2); return ok }

// ask asks at once for that many answers of the most that there will be.
func ask(http2 bool, atOnce, most int) *audience {
	a := &audience{most: most}
	a.session = newSession(&Config{HTTP2: http2}, a)
	for range atOnce {
		a.ask()
	}
	return a
}

// TestH1 feeds two answers in pieces of every size. The second one may not come with the first.
func TestH1(t *testing.T) {
	answers := []string{"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nX: y\r\n\r\nhello", "HTTP/1.1 503 No\r\nContent-Length: 9\r\n\r\nfull\nmore"}
	for size := range 80 {
		a := ask(false, 1, 3)
		for _, answer := range answers {
			for piece := range slices.Chunk([]byte(answer), size+1) {
				if err := a.session.feed(piece); err != nil {
					t.Fatalf("pieces of %d: %v", size, err)
				}
			}
		}
		if sent := a.session.unsent(); fmt.Sprint(a.results) != "[5 bytes, status 200 9 bytes, status 503: full]" || bytes.Count(sent, []byte("GET /x HTTP/1.1\r\n")) != 3 {
			t.Errorf("pieces of %d: %q, sent %q", size, a.results, sent)
		}
	}
}

func TestH1Broken(t *testing.T) {
	for _, tt := range []struct {
		in     string
		atOnce int
		want   error
	}{
		{"SSH-2.0\r\n\r\n", 1, errMalformed}, {"HTTP/1.1 200 OK\r\n\r\n", 1, errMalformed}, {"HTTP/1.1 abc\r\nContent-Length: 1\r\n\r\n", 1, errMalformed},
		{"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", 1, errMalformed}, {strings.Repeat("x", maxHead+1), 1, errMalformed},
		{"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nmore", 1, errUnasked}, {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 0, errUnasked},
	} {
		if err := ask(false, tt.atOnce, 2).session.feed([]byte(tt.in)); !errors.Is(err, tt.want) {
			t.Errorf("%.40q: %v, want %v", tt.in, err, tt.want)
		}
	}
}

// frames returns the bytes of frames.
func frames(write func(*http2.Framer)) []byte {
	var b bytes.Buffer
	write(http2.NewFramer(&b, nil))
	return b.Bytes()
}

// TestH2 feeds frames in pieces of every size.
func TestH2(t *testing.T) {
	all := frames(func(f *http2.Framer) {
		_ = f.WriteSettings()
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x20, 0x88}, EndHeaders: true})
		_ = f.WritePing(false, [8]byte{1, 2})
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: []byte{0x8d}, EndHeaders: true, EndStream: true})
		_ = f.WriteData(1, true, []byte("hello"))
	})
	ack := frames(func(f *http2.Framer) { _ = f.WritePing(true, [8]byte{1, 2}) })
	for size := 1; size <= len(all); size++ {
		a := ask(true, 2, 4)
		for piece := range slices.Chunk(all, size) {
			if err := a.session.feed(piece); err != nil {
				t.Fatalf("pieces of %d: %v", size, err)
			}
		}
		if fmt.Sprint(a.results) != "[0 bytes, status 404 5 bytes, status 200]" || len(a.session.underWay()) != 2 {
			t.Errorf("pieces of %d: %q, %d under way", size, a.results, len(a.session.underWay()))
		}
		if !bytes.Contains(a.session.unsent(), ack) {
			t.Errorf("pieces of %d: no answer to the ping", size)
		}
	}
}

// TestH2Failures feeds answers other than 200, and looks at what is told of them.
func TestH2Failures(t *testing.T) {
	a := ask(true, 1, 9)
	err := a.session.feed(frames(func(f *http2.Framer) {
		busy := appendString([]byte{0x08}, "503") // :status, literal
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: busy, EndHeaders: true, PadLength: 3})
		_ = f.WriteData(1, true, []byte("too many wait\nmore"))
		_ = f.WriteRSTStream(3, http2.ErrCodeInternal)
	}))
	if err != nil {
		t.Fatal(err)
	}
	if len(a.results) != 2 || !strings.HasSuffix(a.results[0], "status 503: too many wait") || !strings.Contains(a.results[1], "reset with INTERNAL_ERROR") {
		t.Errorf("%q", a.results)
	}
	if err := a.session.feed(frames(func(f *http2.Framer) { _ = f.WriteGoAway(0, 0, nil) })); !errors.Is(err, errGoAway) {
		t.Errorf("the end of the connection: %v", err)
	}
}

// TestKinds adds more kinds of failures than are told from each other.
func TestKinds(t *testing.T) {
	f := make(Failures)
	for i := range maxKinds + 2 {
		f.add(string(rune('a' + i)))
	}
	f.add("a")
	if len(f) != maxKinds || f["a"] != 2 || f["others"] != 3 {
		t.Errorf("%d kinds: %v", len(f), f)
	}
}

// TestRunCalls makes calls, of which those for one key fail.
func TestRunCalls(t *testing.T) {
	cfg := Config{
		Clients: 1, Streams: 3, Mix: Mix{Keys: 10}, WarmUp: time.Millisecond, Time: 50 * time.Millisecond,
		Call: func(_ context.Context, key string) (int64, error) {
			if key == resource.Name(3) {
				return 0, errors.New("no")
			}
			return 5, nil
		},
	}
	r, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if r.Answered == 0 || r.Failed == 0 || r.Failures["no"] != r.Failed || r.Total < r.Answered || r.Bytes != 5*r.Answered || r.Quantile(50) <= 0 || r.Quantile(50) > r.Quantile(99) || r.Own <= 0 {
		t.Errorf("%+v", r)
	}
}

// TestRun loads a server of the standard library in every way.
func TestRun(t *testing.T) {
	var answered atomic.Int64
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answered.Add(1)
		if !strings.HasPrefix(r.Header.Get(HeaderKey), "k0000") || r.URL.Path != "/x" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Write([]byte("hello"))
	})
	plain := httptest.NewUnstartedServer(handler)
	plain.Config.Protocols = new(http.Protocols)
	plain.Config.Protocols.SetHTTP1(true)
	plain.Config.Protocols.SetUnencryptedHTTP2(true)
	plain.Start()
	defer plain.Close()
	secure := httptest.NewTLSServer(handler)
	defer secure.Close()
	for name, cfg := range map[string]Config{
		"HTTP/1.1": {Addr: plain.Listener.Addr().String(), Clients: 3},
		"HTTP/2":   {Addr: plain.Listener.Addr().String(), Clients: 2, HTTP2: true, Streams: 3},
		"TLS":      {Addr: secure.Listener.Addr().String(), Clients: 3, TLS: true},
	} {
		cfg.Mix, cfg.WarmUp, cfg.Time = Mix{Path: "/x", Keys: 10}, time.Millisecond, 50*time.Millisecond
		if err := Await(t.Context(), cfg); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		r, err := Run(t.Context(), cfg)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if r.Answered == 0 || r.Failed != 0 || r.Total < r.Answered || r.Bytes != 5*r.Answered || r.Quantile(50) <= 0 || r.Quantile(50) > r.Quantile(99) || r.Own <= 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
	answered.Store(0)
	var held bool
	err := Hold(Config{Addr: plain.Listener.Addr().String(), Clients: 150, Mix: Mix{Path: "/x", Keys: 10}}, func() { held = true })
	if err != nil || !held || answered.Load() != 150 {
		t.Errorf("idle connections: %d answers, %v", answered.Load(), err)
	}
}
