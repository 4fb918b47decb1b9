//go:build linux

package load

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/loadtest/internal/answer"
)

func testMeter(cfg Config) *meter {
	cfg.Path = "/x"
	c := &course{cfg: cfg, requests: [][]byte{newRequest(cfg, KeyName(0))}, sequence: make([]uint32, sequenceLen), answered: make(chan struct{}), cpu: make(map[string]time.Duration)}
	c.enter(measuring)
	return newMeter(c)
}

// TestH1 feeds two answers in pieces of every size.
func TestH1(t *testing.T) {
	answers := "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nX: y\r\n\r\nhello" + "HTTP/1.1 503 No\r\nContent-Length: 9\r\n\r\nfull\nmore"
	for size := 1; size <= len(answers); size++ {
		m := testMeter(Config{})
		s := newSession(m)
		sent := s.begin(nil, 0)
		for piece := range slices.Chunk([]byte(answers), size) {
			out, err := s.feed(piece, nil, 1)
			if err != nil {
				t.Fatalf("pieces of %d: %v", size, err)
			}
			sent = append(sent, out...)
		}
		if m.requests != 1 || m.failed != 1 || m.failures[0].What != "status 503: full" || m.bytes != 5 || bytes.Count(sent, []byte("GET /x HTTP/1.1\r\n")) != 3 {
			t.Errorf("pieces of %d: %d answers with %d bytes, %d failures, sent %q", size, m.requests, m.bytes, m.failed, sent)
		}
	}
}

func TestH1Broken(t *testing.T) {
	s := newSession(testMeter(Config{}))
	s.begin(nil, 0)
	if _, err := s.feed([]byte("SSH-2.0\r\n\r\n"), nil, 1); !errors.Is(err, answer.ErrMalformed) {
		t.Errorf("no answer: %v", err)
	}
	m := testMeter(Config{})
	s = newSession(m)
	s.begin(nil, 0)
	m.left = 0
	if _, err := s.feed([]byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nmore"), nil, 1); !errors.Is(err, answer.ErrUnasked) {
		t.Errorf("bytes after the last answer: %v", err)
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
		m := testMeter(Config{HTTP2: true, Streams: 2})
		s := newSession(m)
		s.begin(nil, 0)
		var sent []byte
		for piece := range slices.Chunk(frames, size) {
			out, err := s.feed(piece, nil, 1)
			if err != nil {
				t.Fatalf("pieces of %d: %v", size, err)
			}
			sent = append(sent, out...)
		}
		if m.requests != 1 || m.failed != 1 || m.failures[0].What != "status 404" || m.bytes != 5 || s.busy() != 2 {
			t.Errorf("pieces of %d: %d answers with %d bytes, %d failures, %d under way", size, m.requests, m.bytes, m.failed, s.busy())
		}
		if ack := appendFrame(nil, framePing, flagAck, 0, []byte("12345678")); !bytes.Contains(sent, ack) {
			t.Errorf("pieces of %d: no answer to the ping", size)
		}
	}
}

// TestH2Failures feeds answers other than 200, and looks at what is told of them.
func TestH2Failures(t *testing.T) {
	m := testMeter(Config{HTTP2: true, Streams: 1})
	s := newSession(m)
	s.begin(nil, 0)
	busy := appendString([]byte{0x08}, "503") // :status, literal
	padded := append(append([]byte{3}, busy...), 0, 0, 0)
	frames := appendFrame(nil, frameHeaders, flagEndHeaders|flagPadded, 1, padded)
	frames = appendFrame(frames, frameData, flagEndStream, 1, []byte("too many wait\nmore"))
	frames = appendFrame(frames, frameHeaders, flagEndHeaders, 3, busy)
	frames = appendFrame(frames, frameData, flagEndStream, 3, []byte("too many wait\n"))
	frames = appendFrame(frames, frameReset, 0, 5, binary.BigEndian.AppendUint32(nil, 2))
	if _, err := s.feed(frames, nil, 1); err != nil {
		t.Fatal(err)
	}
	if f := m.failures; len(f) != 2 || f[0].What != "status 503: too many wait" || f[0].Count != 2 || !strings.Contains(f[1].What, "reset with 00000002") {
		t.Errorf("failures: %v", f)
	}
}

// TestFailures adds more kinds of failures than are told from each other.
func TestFailures(t *testing.T) {
	var f Failures
	for i := range maxKinds + 2 {
		f = f.with(Failure{What: string(rune('a' + i)), Count: 1, First: time.Duration(i), Last: time.Duration(i)})
	}
	f = f.with(Failure{What: "a", Count: 2, First: 7, Last: 7})
	if last := f[len(f)-1]; len(f) != maxKinds || f[0].Count != 3 || f[0].First != 0 || f[0].Last != 7 || last.What != "others" || last.Count != 3 {
		t.Errorf("%d kinds: %v", len(f), f)
	}
}

func TestH2GoAway(t *testing.T) {
	s := newSession(testMeter(Config{HTTP2: true, Streams: 1}))
	s.begin(nil, 0)
	if _, err := s.feed(appendFrame(nil, frameGoAway, 0, 0, binary.BigEndian.AppendUint32(nil, 0)), nil, 1); err == nil {
		t.Error("the end of the connection went unnoticed")
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
		Addr: l.Addr().String(), Link: &want, Forwarded: true, Connections: 2, Streams: 3, Path: "/x", Keys: 10,
		WarmUp: time.Millisecond, Time: 50 * time.Millisecond, Groups: map[string][]int{"all": {0}},
	}
	if err := AwaitLink(t.Context(), cfg, []string{KeyName(1), KeyName(2)}); err != nil {
		t.Fatal(err)
	}
	r, err := Run(cfg, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Requests == 0 || r.Failed != 0 || r.Total < r.Requests || r.Bytes != 5*r.Requests || r.P50 <= 0 || r.P50 > r.P99 || r.Own <= 0 || r.CPU["all"] <= 0 {
		t.Errorf("%+v", r)
	}
}

// TestRun loads a server of the standard library in every way.
func TestRun(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
		"HTTP/1.1": {Addr: plain.Listener.Addr().String(), Connections: 3},
		"HTTP/2":   {Addr: plain.Listener.Addr().String(), Connections: 2, HTTP2: true, Streams: 3},
		"TLS":      {Addr: secure.Listener.Addr().String(), Connections: 3, TLS: true},
	} {
		cfg.Path, cfg.Keys, cfg.WarmUp, cfg.Time = "/x", 10, time.Millisecond, 50*time.Millisecond
		cfg.Groups = map[string][]int{"all": {0}}
		r, err := Run(cfg, nil, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if r.Requests == 0 || r.Failed != 0 || r.Total < r.Requests || r.Bytes != 5*r.Requests || r.P50 <= 0 || r.P50 > r.P99 || r.Own <= 0 || r.CPU["all"] <= 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
	idle := false
	release := make(chan struct{})
	close(release)
	r, err := Run(Config{Addr: plain.Listener.Addr().String(), Connections: 150, Path: "/x", Keys: 10}, func() { idle = true }, release)
	if err != nil || !idle || r.Total != 150 {
		t.Errorf("idle connections: %+v, %v", r, err)
	}
}
