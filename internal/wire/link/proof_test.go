package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/internal/wire/netutil"
)

// secret returns one that begins with the byte.
func secret(b byte) []byte { return append([]byte{b}, make([]byte, 31)...) }

// keyed is a configuration whose settings can be found in what is sent.
func keyed(secrets ...[]byte) Config {
	return Config{Cluster: "private-name", Digest: 7, Secrets: secrets}
}

// TestKeys: ends that have a key in common serve each other, as long as each knows
// the first of the other. Others say on both sides what to do, and tell nothing.
func TestKeys(t *testing.T) {
	a, b := secret('a'), secret('b')
	for name, tc := range map[string]struct {
		client, server [][]byte
		ok             bool
	}{
		"none":                          {nil, nil, true},
		"the same":                      {[][]byte{a}, [][]byte{a}, true},
		"a new one is added":            {[][]byte{a}, [][]byte{a, b}, true},
		"a new one is known":            {[][]byte{a, b}, [][]byte{a}, true},
		"a new one comes first":         {[][]byte{b, a}, [][]byte{a, b}, true},
		"the client has none":           {nil, [][]byte{a}, false},
		"the server has none":           {[][]byte{a}, nil, false},
		"each has another one":          {[][]byte{a}, [][]byte{b}, false},
		"the server's first is unknown": {[][]byte{a}, [][]byte{b, a}, false},
		"the client's first is unknown": {[][]byte{b, a}, [][]byte{a}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t, func(w *ResponseWriter, r *ServerRequest) { text(w, "hello") }, keyed())
				p.Client.Config.Secrets, p.Server.Config.Secrets = tc.client, tc.server
				var both [2]recorder
				record(&p.Client, &both[0], &both[1])
				got, err := p.get(t, "/")
				p.Client.Close()
				p.wg.Wait()
				if tc.ok {
					if got != "hello" || err != nil {
						t.Errorf("%q, %v", got, err)
					}
					return
				}
				want(t, err, ErrNotStarted)
				for _, err := range []error{err, p.ended[0]} {
					mismatch, ok := errors.AsType[*MismatchError](err)
					if !ok || mismatch.What != whatKey || mismatch.Local == mismatch.Remote || !strings.Contains(err.Error(), "--gossip-key") {
						t.Errorf("got %v", err)
					}
				}
				if both[0].says(p.Client.Config.Cluster) {
					t.Error("the client has told its settings")
				}
				if knows := slices.ContainsFunc(tc.server, func(s []byte) bool { return tc.client != nil && bytes.Equal(s, tc.client[0]) }); both[1].says(p.Server.Config.Cluster) != knows {
					t.Errorf("the server has told its settings: %v", !knows)
				}
			})
		})
	}
}

// recorder keeps what was written.
type recorder struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (r *recorder) add(p []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.b.Write(p)
}

func (r *recorder) says(text string) bool { return bytes.Contains(r.bytes(), []byte(text)) }

func (r *recorder) bytes() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Clone(r.b.Bytes())
}

// tap is a connection on the way of which somebody listens, or changes what is
// said.
type tap struct {
	net.Conn
	write, read func(b []byte)
}

func (c *tap) Write(b []byte) (int, error) {
	b = bytes.Clone(b)
	c.write(b)
	return c.Conn.Write(b)
}

func (c *tap) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read(b[:n])
	return n, err
}

// record keeps what a client sends and gets.
func record(c *Client, sent, got *recorder) {
	tamper(c, func() (write, read func(b []byte)) { return sent.add, got.add })
}

// tamper taps each connection of a client with functions of its own.
func tamper(c *Client, with func() (write, read func(b []byte))) {
	dial := c.Dial
	c.Dial = func(ctx context.Context) (net.Conn, error) {
		nc, err := dial(ctx)
		write, read := with()
		return &tap{nc, write, read}, err
	}
}

// flip returns a function that changes the byte at an offset of what passes it.
func flip(offset int) func(b []byte) {
	passed := 0
	return func(b []byte) {
		if i := offset - passed; 0 <= i && i < len(b) {
			b[i] ^= 1
		}
		passed += len(b)
	}
}

// TestTamperedHandshake: with a key, no request runs over a connection of whose
// handshake anything was changed on the way.
func TestTamperedHandshake(t *testing.T) {
	nothing := func([]byte) {}
	var sent, got recorder
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) { text(w, "hello") }, keyed(secret('a')))
		record(&p.Client, &sent, &got)
		if _, err := p.get(t, "/"); err != nil {
			t.Fatal(err)
		}
	})
	clientHello, serverHello := payloads(t, sent.bytes(), 2), payloads(t, got.bytes(), 1)
	try := func(name string, with func() (write, read func([]byte))) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t, func(w *ResponseWriter, r *ServerRequest) { t.Error("it ran") }, keyed(secret('a')))
				tamper(&p.Client, with)
				if got, err := p.get(t, "/"); err == nil {
					t.Errorf("answered %q", got)
				}
			})
		})
	}
	for _, at := range clientHello {
		try(fmt.Sprintf("client's byte %d", at), func() (write, read func([]byte)) { return flip(at), nothing })
	}
	for _, at := range serverHello {
		try(fmt.Sprintf("server's byte %d", at), func() (write, read func([]byte)) { return nothing, flip(at) })
	}
}

// payloads returns the offsets of the payloads' bytes of the first frames behind a
// preface.
func payloads(t *testing.T, b []byte, frames int) (offsets []int) {
	at := len(preface)
	for range frames {
		h := parseHeader(b[at:])
		if h.kind != kindHello && h.kind != kindProof {
			t.Fatalf("%v", h.kind)
		}
		for i := range h.length {
			offsets = append(offsets, at+headerLen+i)
		}
		at += headerLen + h.length
	}
	return offsets
}

// TestOldHandshake: what was recorded of one connection opens no other one, in
// whatever order, in part, or to the one that said it.
func TestOldHandshake(t *testing.T) {
	var sent, got recorder
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) { text(w, "hello") }, keyed(secret('a')))
		record(&p.Client, &sent, &got)
		if _, err := p.get(t, "/"); err != nil {
			t.Fatal(err)
		}
	})
	client, server := sent.bytes(), got.bytes()
	hello := len(preface) + headerLen + parseHeader(client[len(preface):]).length
	proof := hello + headerLen + parseHeader(client[hello:]).length
	answer := len(preface) + headerLen + parseHeader(server[len(preface):]).length
	request := client[proof:]
	for name, said := range map[string][]byte{
		"again":                      client,
		"in part":                    client[:proof-1],
		"without a hello":            client[hello:],
		"without a proof":            slices.Concat(client[:hello], request),
		"proof first":                slices.Concat([]byte(preface), client[hello:proof], client[len(preface):hello], request),
		"an empty proof":             slices.Concat(client[:hello], proofFrame(), request),
		"the server's hello":         slices.Concat(server[:answer], client[hello:]),
		"without keys":               append(clientGreeting(), request...),
		"the request before a proof": slices.Concat(client[:hello], request, client[hello:proof]),
	} {
		t.Run("to a server: "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := keyed(secret('a'))
				cfg.Logger = slog.New(slog.DiscardHandler)
				s := &Server{Config: cfg, Handler: HandlerFunc(func(*ResponseWriter, *ServerRequest) { t.Error("it ran") })}
				near, far := net.Pipe()
				go func() {
					near.Write(said)
					near.Close()
				}()
				go io.Copy(io.Discard, near)
				if err := s.ServeConn(far); err == nil {
					t.Error("no error")
				}
			})
		})
	}
	for name, said := range map[string][]byte{
		"again":                  server,
		"its own hello":          client[:hello],
		"all that it said":       client,
		"a server's without key": serverGreeting(),
		"in part":                server[:answer-1],
	} {
		t.Run("to a client: "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sent recorder
				near, far := net.Pipe()
				c := &Client{Config: keyed(secret('a')), Dial: func(context.Context) (net.Conn, error) { return near, nil }}
				record(c, &sent, &recorder{})
				defer c.Close()
				go io.Copy(io.Discard, far)
				go func() {
					far.Write(said)
					far.Close()
				}()
				if _, err := c.Do(t.Context(), post("")); !errors.Is(err, ErrNotStarted) {
					t.Errorf("got %v", err)
				}
				if sent.says("private-name") || sent.says("POST") {
					t.Error("the client has told its settings, or sent the request")
				}
			})
		})
	}
	t.Run("to a client: its own words", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			c := &Client{Config: keyed(secret('a')), Dial: func(context.Context) (net.Conn, error) { return near, nil }}
			defer c.Close()
			go func() {
				io.Copy(far, far)
				far.Close()
			}()
			if _, err := c.Do(t.Context(), post("")); !errors.Is(err, ErrNotStarted) {
				t.Errorf("got %v", err)
			}
		})
	})
}

// TestProofsDiffer: what proves one thing proves no other one.
func TestProofsDiffer(t *testing.T) {
	known := map[string]string{}
	for _, r := range []role{clientGreets, serverProves, clientProves} {
		for _, parts := range [][][]byte{{}, {{}}, {[]byte("ab")}, {[]byte("a"), []byte("b")}, {[]byte("ab"), {}}} {
			for _, s := range [][]byte{secret('a'), secret('b')} {
				name := fmt.Sprintf("%q %q %c", r, parts, s[0])
				p := prove(s, r, parts...)
				if same, ok := known[p]; ok || len(p) != proofLen {
					t.Errorf("%s is %s", name, same)
				}
				known[p] = name
			}
		}
	}
}

// TestStrangersFillNoLog: whatever strangers say, it is logged once a minute.
func TestStrangersFillNoLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		cfg := keyed(secret('a'))
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		s := &Server{Config: cfg}
		const other = Version + 1
		for i := range 100 {
			for _, said := range []string{"\x00nonsense", string(clientGreeting()), string(helloFrameOf(other + i))} {
				near, far := net.Pipe()
				go func() {
					io.WriteString(near, said)
					near.Close()
				}()
				go io.Copy(io.Discard, near)
				s.ServeConn(far)
			}
			time.Sleep(time.Second)
		}
		if n := strings.Count(log.String(), "\n"); n != 3*2 {
			t.Errorf("%d lines:\n%s", n, &log)
		}
	})
}

// TestPlain: a member's connection for HTTP/1.1 is served as such, nobody else's.
func TestPlain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) { t.Error("it ran") }, keyed(secret('a')))
		if conn, err := p.DialPlain(t.Context()); err == nil {
			if n, err := conn.Read(make([]byte, 1)); err == nil {
				t.Errorf("%d bytes where there is no HTTP/1.1", n)
			}
		}
		listener := netutil.NewListener(&net.UnixAddr{Name: "memory"})
		p.Plain = listener
		plain := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") })}
		defer plain.Close()
		go plain.Serve(listener)
		tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return p.DialPlain(ctx) }}
		defer tr.CloseIdleConnections()
		for range 2 {
			res, err := tr.RoundTrip(kitRequest(t))
			if err != nil {
				t.Fatal(err)
			}
			if b, err := io.ReadAll(res.Body); string(b) != "hello" || err != nil {
				t.Errorf("%q, %v", b, err)
			}
		}
		stranger := &Client{Dial: p.Dial, Config: keyed()}
		defer stranger.Close()
		if _, err := stranger.DialPlain(t.Context()); err == nil || !strings.Contains(err.Error(), "--gossip-key") {
			t.Errorf("a stranger: %v", err)
		}
		p.Plain = netutil.NewListener(listener.Addr()) // on which nobody accepts
		waits, err := p.DialPlain(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		start := time.Now()
		if err := p.Server.Shutdown(t.Context()); err != nil || time.Since(start) != 0 {
			t.Errorf("shut down after %v: %v", time.Since(start), err)
		}
		if _, err := waits.Read(make([]byte, 1)); err == nil {
			t.Error("one that was not accepted is still there")
		}
		if _, err := p.DialPlain(t.Context()); err == nil {
			t.Error("taken after the end")
		}
		if res, err := tr.RoundTrip(kitRequest(t)); err != nil || res.StatusCode != 200 {
			t.Errorf("an open connection: %v, %v", res, err)
		}
	})
}

func kitRequest(t *testing.T) *http.Request {
	r, err := http.NewRequestWithContext(t.Context(), "GET", "http://h/", nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestPlainAtOnce: a request that comes in one piece with the handshake is not lost.
func TestPlainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener := netutil.NewListener(&net.UnixAddr{Name: "memory"})
		s := &Server{Config: logless(), Plain: listener}
		near, far := net.Pipe()
		defer near.Close()
		served := make(chan error, 1)
		go func() { served <- s.ServeConn(far) }()
		b := helloFrame(&hello{Version: Version, Plain: true})
		go near.Write(slices.Concat(b, proofFrame(), []byte("GET / HTTP/1.1\r\n")))
		go io.Copy(io.Discard, near)
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 16)
		if _, err := io.ReadFull(conn, got); string(got) != "GET / HTTP/1.1\r\n" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		conn.SetReadDeadline(time.Now())
		if n, err := conn.Read(got); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d bytes more, %v", n, err)
		}
		conn.Close()
	})
}
