//go:build linux

package load

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/wire/link"
)

// audience is an owner that asks again, up to most times.
type audience struct {
	session session
	most    int
	results []string
	started time.Duration // see started
}

func (a *audience) answered(_ time.Duration, status int, length int64, body []byte) {
	a.results, a.started = append(a.results, fmt.Sprint(length, " bytes, ", statusOf(status, body))), max(a.started, started(body))
	a.ask()
}

func (a *audience) ask() {
	if a.most--; a.most >= 0 {
		a.session.send(newRequests(&Config{HTTP2: isH2(a.session), Mix: Mix{Keys: 1, Reads: 1, Path: "/x"}}).raw[0], 0)
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
	answers := []string{"HTTP/1.1 200 OK\r\ncontent-length: 12\r\nX: y\r\n\r\n{\"begun\":77}", "HTTP/1.1 503 No\r\nContent-Length: 9\r\n\r\nfull\nmore"}
	for size := range 80 {
		a := ask(false, 1, 3)
		for _, answer := range answers {
			for piece := range slices.Chunk([]byte(answer), size+1) {
				if err := a.session.feed(piece); err != nil {
					t.Fatalf("pieces of %d: %v", size, err)
				}
			}
		}
		if sent := a.session.unsent(); fmt.Sprint(a.results) != "[12 bytes, status 200: {\"begun\":77} 9 bytes, status 503: full]" || a.started != 77 || bytes.Count(sent, []byte("GET /x HTTP/1.1\r\n")) != 3 {
			t.Errorf("pieces of %d: %q, begun at %v, sent %q", size, a.results, a.started, sent)
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

// TestH2 feeds frames in pieces of every size.
func TestH2(t *testing.T) {
	frames := appendFrame(nil, frameSettings, 0, 0, nil)
	frames = appendFrame(frames, frameHeaders, flagEndHeaders, 1, []byte{0x20, 0x88})
	frames = appendFrame(frames, framePing, 0, 0, []byte("12345678"))
	frames = appendFrame(frames, frameHeaders, flagEndHeaders|flagEndStream, 3, []byte{0x8d})
	frames = appendFrame(frames, frameData, flagEndStream, 1, []byte("hello"))
	for size := 1; size <= len(frames); size++ {
		a := ask(true, 2, 4)
		for piece := range slices.Chunk(frames, size) {
			if err := a.session.feed(piece); err != nil {
				t.Fatalf("pieces of %d: %v", size, err)
			}
		}
		if fmt.Sprint(a.results) != "[0 bytes, status 404 5 bytes, status 200]" || len(a.session.underWay()) != 2 {
			t.Errorf("pieces of %d: %q, %d under way", size, a.results, len(a.session.underWay()))
		}
		if ack := appendFrame(nil, framePing, flagAck, 0, []byte("12345678")); !bytes.Contains(a.session.unsent(), ack) {
			t.Errorf("pieces of %d: no answer to the ping", size)
		}
	}
}

// TestH2Failures feeds answers other than 200, and looks at what is told of them.
func TestH2Failures(t *testing.T) {
	a := ask(true, 1, 9)
	busy := appendString([]byte{0x08}, "503") // :status, literal
	padded := append(append([]byte{3}, busy...), 0, 0, 0)
	frames := appendFrame(nil, frameHeaders, flagEndHeaders|flagPadded, 1, padded)
	frames = appendFrame(frames, frameData, flagEndStream, 1, []byte("too many wait\nmore"))
	frames = appendFrame(frames, frameReset, 0, 3, binary.BigEndian.AppendUint32(nil, 2))
	if err := a.session.feed(frames); err != nil {
		t.Fatal(err)
	}
	if len(a.results) != 2 || !strings.HasSuffix(a.results[0], "status 503: too many wait") || !strings.Contains(a.results[1], "reset with 00000002") {
		t.Errorf("%q", a.results)
	}
	if err := a.session.feed(appendFrame(nil, frameGoAway, 0, 0, binary.BigEndian.AppendUint32(nil, 0))); !errors.Is(err, errGoAway) {
		t.Errorf("the end of the connection: %v", err)
	}
}

// TestKinds adds more kinds of failures than are told from each other.
func TestKinds(t *testing.T) {
	var f Failures
	for i := range maxKinds + 2 {
		f = f.with(Failure{What: string(rune('a' + i)), Count: 1, First: time.Duration(i), Last: time.Duration(i)})
	}
	f = f.with(Failure{What: "a", Count: 2, First: 7, Last: 7})
	if last := f[len(f)-1]; len(f) != maxKinds || f[0].Count != 3 || f[0].First != 0 || f[0].Last != 7 || last.What != "others" || last.Count != 3 {
		t.Errorf("%d kinds: %v", len(f), f)
	}
}

// TestRunLink loads a server of links that wants a proof.
func TestRunLink(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	want := Link{Cluster: "c", Digest: 7, Secrets: [][]byte{make([]byte, 32)}, Policy: []byte("policy"), Prefix: "bench:"}
	server := &link.Server{Config: want.config(), Handler: link.HandlerFunc(func(w *link.ResponseWriter, r *link.ServerRequest) {
		header := r.Fields.Header()
		if r.Key != want.Prefix+header.Get(HeaderKey) || r.Target != "/x" || header.Get("X-Forwarded-For") == "" || string(r.Policy) != "policy" {
			w.WriteHead(http.StatusBadRequest, 0, nil)
			return
		}
		w.Write([]byte("hello"))
	})}
	go server.Serve(l)
	defer server.Close()
	cfg := Config{
		Addr: l.Addr().String(), Link: &want, Clients: 2, Streams: 3, Mix: Mix{Path: "/x", Keys: 10, Forwarded: true},
		WarmUp: time.Millisecond, Time: 50 * time.Millisecond, Groups: map[string][]int{"all": {0}},
	}
	if err := AwaitLink(t.Context(), cfg, []string{KeyName(1), KeyName(2)}); err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if r.Answered == 0 || r.Failed != 0 || r.Total < r.Answered || r.Bytes != 5*r.Answered || r.P50 <= 0 || r.P50 > r.P99 || r.Own <= 0 || r.CPU["all"] <= 0 {
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
		cfg.Groups = map[string][]int{"all": {0}}
		r, err := Run(t.Context(), cfg)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if r.Answered == 0 || r.Failed != 0 || r.Total < r.Answered || r.Bytes != 5*r.Answered || r.P50 <= 0 || r.P50 > r.P99 || r.Own <= 0 || r.CPU["all"] <= 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
	answered.Store(0)
	ctx, release := context.WithCancel(t.Context())
	err := Hold(ctx, Config{Addr: plain.Listener.Addr().String(), Clients: 150, Mix: Mix{Path: "/x", Keys: 10}}, release)
	if err != nil || ctx.Err() == nil || answered.Load() != 150 {
		t.Errorf("idle connections: %d answers, %v", answered.Load(), err)
	}
}
