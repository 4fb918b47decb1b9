package hop2_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/wire/hop1"
	"github.com/keyway-go/keyway/internal/wire/hop2"
)

// transport returns a transport to the server at addr.
func transport(addr string) *hop2.Transport {
	return &hop2.Transport{
		Dial: func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		},
		Requests: 10, Wait: time.Minute, Idle: time.Minute,
	}
}

func request(t *testing.T, body string) *http.Request {
	t.Helper()
	method, reader := http.MethodGet, io.Reader(nil)
	if body != "" {
		method, reader = http.MethodPost, struct{ io.Reader }{strings.NewReader(body)}
	}
	r, err := http.NewRequestWithContext(t.Context(), method, "http://h/", reader)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// scripted is a server that does with each request what its script says, which may end
// the connection.
type scripted struct {
	addr     string
	requests atomic.Int64
}

// reply takes the frames of answers; "" ends the connection.
type reply chan<- string

func (r reply) write(kind, flags byte, stream uint32, payload string) {
	r <- kit.H2Frame(kind, flags, stream, payload)
}

// head sends header fields, as HPACK has them.
func (r reply) head(stream uint32, end bool, fields string) {
	flags := byte(flagEndHeaders)
	if end {
		flags |= flagEndStream
	}
	r.write(frameHeaders, flags, stream, fields)
}

// Heads, see RFC 7541, section 6 and appendix A.
const (
	status200 = "\x88"
	status204 = "\x89"
	status103 = "\x08\x03103" + "\x00\x04link\x01a" // with a field
)

func (r reply) reset(stream uint32, code byte) {
	r.write(frameReset, 0, stream, "\x00\x00\x00"+string([]byte{code}))
}

// leave says that the connection takes no streams above last, with NO_ERROR.
func (r reply) leave(last uint32) {
	r.write(frameGoAway, 0, 0, string(binary.BigEndian.AppendUint32(nil, last))+"\x00\x00\x00\x00")
}

// Of RFC 9113.
const (
	frameHeaders, frameReset, frameSettings, frameGoAway = 1, 3, 4, 7
	flagEndStream, flagAck, flagEndHeaders               = 1, 1, 4

	protocolError, internalError, refusedStream, cancelled = 1, 2, 7, 8
)

func newScripted(t *testing.T, script func(r reply, stream uint32, number int64)) *scripted {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &scripted{addr: l.Addr().String()}
	var wg sync.WaitGroup
	ctx := t.Context()
	t.Cleanup(func() { l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			context.AfterFunc(ctx, func() { c.Close() })
			wg.Go(func() { s.serve(c, script) })
		}
	})
	return s
}

func (s *scripted) serve(c net.Conn, script func(r reply, stream uint32, number int64)) {
	defer c.Close()
	out := make(chan string, 16)
	defer close(out)
	go func() {
		for frame := range out {
			if frame == "" {
				c.Close()
			}
			_, _ = io.WriteString(c, frame) // should it fail, nobody is there
		}
	}()
	in, r := bufio.NewReader(c), reply(out)
	if _, err := in.Discard(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")); err != nil {
		return
	}
	r.write(frameSettings, 0, 0, "")
	for {
		var head [9]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return
		}
		if _, err := in.Discard(int(head[0])<<16 | int(head[1])<<8 | int(head[2])); err != nil {
			return
		}
		switch kind, flags := head[3], head[4]; {
		case kind == frameHeaders:
			script(r, binary.BigEndian.Uint32(head[5:]), s.requests.Add(1))
		case kind == frameSettings && flags&flagAck == 0:
			r.write(frameSettings, flagAck, 0, "")
		}
	}
}

// What the server does with a request tells whether it has begun with it; a request
// that may have is never sent again.
func TestTrapWhatHasNotStarted(t *testing.T) {
	const answered, notStarted, mayHaveRun = 0, 1, 2
	answer := func(r reply, stream uint32) { r.head(stream, true, status204) }
	reset := func(code byte) func(r reply, stream uint32, number int64) {
		return func(r reply, stream uint32, number int64) { r.reset(stream, code) }
	}
	for name, tt := range map[string]struct {
		script         func(r reply, stream uint32, number int64)
		bodiless, body int
		requests       int64 // without a body, that the server sees
	}{
		"answer": {script: func(r reply, stream uint32, _ int64) { answer(r, stream) }, requests: 1},
		"interim answer": {script: func(r reply, stream uint32, _ int64) {
			r.head(stream, false, status103)
			answer(r, stream)
		}, requests: 1},
		"goaway below it": {script: func(r reply, stream uint32, number int64) {
			if number == 1 {
				r.leave(stream - 1)
				return
			}
			answer(r, stream)
		}, body: notStarted, requests: 2},
		"goaway below it, again and again": {script: func(r reply, stream uint32, number int64) {
			r.leave(stream - 1)
		}, bodiless: notStarted, body: notStarted, requests: 3},
		"goaway with it": {script: func(r reply, stream uint32, number int64) {
			r.leave(stream)
			r <- ""
		}, bodiless: mayHaveRun, body: mayHaveRun, requests: 1},
		"end":            {script: func(r reply, _ uint32, _ int64) { r <- "" }, bodiless: mayHaveRun, body: mayHaveRun, requests: 1},
		"refused":        {script: reset(refusedStream), bodiless: notStarted, body: notStarted, requests: 1},
		"protocol error": {script: reset(protocolError), bodiless: mayHaveRun, body: mayHaveRun, requests: 1},
		"internal error": {script: reset(internalError), bodiless: mayHaveRun, body: mayHaveRun, requests: 1},
		"cancelled":      {script: reset(cancelled), bodiless: mayHaveRun, body: mayHaveRun, requests: 1},
	} {
		for body, want := range map[string]int{"": tt.bodiless, "body": tt.body} {
			t.Run(name+"/"+body, func(t *testing.T) {
				s := newScripted(t, tt.script)
				res, err := transport(s.addr).RoundTrip(request(t, body))
				if err == nil {
					res.Body.Close()
				}
				if (err == nil) != (want == answered) || errors.Is(err, hop1.ErrNotStarted) != (want == notStarted) {
					t.Errorf("%v, %v", res, err)
				}
				if n := s.requests.Load(); body == "" && n != tt.requests || body != "" && n != 1 {
					t.Errorf("the server sees %d requests, want %d without a body", n, tt.requests)
				}
			})
		}
	}
	p := transport("")
	p.Dial = func(context.Context) (net.Conn, error) { return nil, syscall.ECONNREFUSED }
	if _, err := p.RoundTrip(request(t, "")); !errors.Is(err, hop1.ErrNotStarted) || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v from a dial that failed", err)
	}
}

// Bodies larger than the windows go both ways at once, with trailers behind them and
// interim answers before.
func TestEcho(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Link", "a")
		rw.WriteHeader(http.StatusEarlyHints)
		rw.Header().Set("Trailer", "X-Sum")
		n, err := io.Copy(rw, r.Body)
		rw.Header().Set("X-Sum", fmt.Sprint(n, " ", r.Trailer.Get("X-Sent"), " ", err))
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	defer s.Close()
	var dials atomic.Int64
	p := transport(s.Listener.Addr().String())
	dial := p.Dial
	p.Dial = func(ctx context.Context) (net.Conn, error) {
		dials.Add(1)
		return dial(ctx)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			const size = 4 << 20
			r := request(t, strings.Repeat("x", size))
			r.Trailer = http.Header{"X-Sent": {"all"}}
			interim := 0
			r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				interim++
				return nil
			}}))
			res, err := p.RoundTrip(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			n, err := io.Copy(io.Discard, res.Body)
			if sum := fmt.Sprint(size, " all <nil>"); n != size || err != nil || res.Trailer.Get("X-Sum") != sum || interim != 1 {
				t.Errorf("%d bytes, %v, trailer %q, %d interim answers", n, err, res.Trailer, interim)
			}
		})
	}
	wg.Wait()
	if n := dials.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// Who gives a request up waits until the server has closed the connection, or for the
// grace.
func TestGivingUp(t *testing.T) {
	const grace = time.Second
	for _, part := range []bool{false, true} {
		for _, closes := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				defer far.Close()
				s := new(scripted)
				go s.serve(far, func(r reply, stream uint32, _ int64) {
					if part {
						r.head(stream, false, status200)
						r.write(0, 0, stream, "part")
					}
				})
				p := transport("")
				p.Grace, p.Dial = grace, func(context.Context) (net.Conn, error) { return near, nil }
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				body, rest := io.Pipe()
				defer rest.Close()
				go func() {
					r := request(t, "").WithContext(ctx)
					if part { // and a part of a request
						r.Method, r.Body = http.MethodPost, body
					}
					res, err := p.RoundTrip(r)
					if err == nil {
						_, err = io.ReadAll(res.Body)
						res.Body.Close()
					}
					ended <- err
				}()
				synctest.Wait()
				cancel()
				time.Sleep(grace - 1)
				if synctest.Wait(); len(ended) > 0 {
					t.Errorf("part of an answer %v: it is given up before the server has closed the connection", part)
				}
				if closes {
					far.Close()
				} else {
					time.Sleep(1 * time.Nanosecond)
				}
				if synctest.Wait(); len(ended) == 0 {
					t.Fatalf("part of an answer %v, the server closes %v: it is not given up", part, closes)
				}
				if err := <-ended; !errors.Is(err, context.Canceled) || errors.Is(err, hop1.ErrNotStarted) {
					t.Errorf("part of an answer %v: %v", part, err)
				}
			})
		}
	}
}

// A request over the bound waits for as long as the transport says.
func TestFull(t *testing.T) {
	release := make(chan struct{})
	s := newScripted(t, func(r reply, stream uint32, _ int64) {
		<-release
		r.head(stream, true, status204)
	})
	p := transport(s.addr)
	full := make(chan struct{}, 1)
	p.Requests, p.Wait, p.Full = 1, time.Nanosecond, func() { full <- struct{}{} }
	first := make(chan error, 1)
	sent := make(chan struct{})
	go func() {
		r := request(t, "")
		ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{WroteHeaders: func() { close(sent) }})
		res, err := p.RoundTrip(r.WithContext(ctx))
		if err == nil {
			res.Body.Close()
		}
		first <- err
	}()
	<-sent
	if _, err := p.RoundTrip(request(t, "body")); !errors.Is(err, hop1.ErrFull) || !errors.Is(err, hop1.ErrNotStarted) || len(full) != 1 {
		t.Errorf("%v; was full %d times", err, len(full))
	}
	close(release)
	if err := <-first; err != nil {
		t.Error(err)
	}
}
