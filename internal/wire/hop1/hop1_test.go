package hop1

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// server answers each request with what script returns; a nil script closes.
type server struct {
	addr  string
	conns atomic.Int64
	wg    sync.WaitGroup
}

func newServer(t *testing.T, script func(c net.Conn, r *http.Request) (more bool)) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{addr: l.Addr().String()}
	t.Cleanup(func() { l.Close(); s.wg.Wait() })
	s.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.conns.Add(1)
			s.wg.Go(func() {
				defer c.Close()
				in := bufio.NewReader(c)
				for {
					r, err := http.ReadRequest(in)
					if err != nil || !script(c, r) {
						return
					}
				}
			})
		}
	})
	return s
}

// pool returns a pool of connections to s. Wrapped ones are no sockets.
func (s *server) pool(t *testing.T, wrap bool) *Pool {
	p := &Pool{Conns: 2, Dial: func(ctx context.Context) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", s.addr)
		if wrap && err == nil {
			c = struct{ net.Conn }{c}
		}
		return c, err
	}}
	t.Cleanup(p.Close)
	return p
}

const get = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"

// ask sends a request and returns what came, in a line.
func ask(ctx context.Context, p *Pool, method, message string) (string, error) {
	x := p.Begin()
	defer x.Close()
	x.Method, x.Message = method, append(x.Message, message...)
	if err := x.Do(ctx); err != nil {
		return "", err
	}
	var all strings.Builder
	for x.Status < 200 {
		fmt.Fprintf(&all, "%d %s, ", x.Status, x.Fields)
		if err := x.Continue(); err != nil {
			return all.String(), err
		}
	}
	fmt.Fprintf(&all, "%d %d %s ", x.Status, x.ContentLength, x.Fields)
	for {
		_, last := x.Buffered()
		piece, err := x.Next()
		switch {
		case err == io.EOF:
			fmt.Fprintf(&all, " %s", x.Trailer())
			return strings.TrimSuffix(all.String(), " []"), nil
		case err != nil && last:
			return all.String(), fmt.Errorf("it was said to be whole: %w", err)
		case err != nil:
			return all.String(), err
		}
		all.Write(piece)
	}
}

func TestAnswers(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	tests := map[string]struct {
		method, raw string
		want        string
		err         error // nil for none
		keeps       bool  // the connection
	}{
		"length":       {"GET", ok + "A: b\r\nContent-Length: 5\r\n\r\nhello", "200 5 [{A b}] hello", nil, true},
		"nothing":      {"GET", ok + "Content-Length: 0\r\n\r\n", "200 0 [] ", nil, true},
		"HEAD":         {"HEAD", ok + "Content-Length: 5\r\n\r\n", "200 5 [] ", nil, true},
		"HEAD, chunks": {"HEAD", ok + "Transfer-Encoding: chunked\r\n\r\n", "200 -1 [] ", nil, true},
		"204":          {"GET", "HTTP/1.1 204 No Content\r\n\r\n", "204 -1 [] ", nil, true},
		"304":          {"GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", "304 9 [] ", nil, true},
		"chunks":       {"GET", ok + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n", "200 -1 [] hello!", nil, true},
		"trailers":     {"GET", ok + "Trailer: X\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX: y\r\n\r\n", "200 -1 [{Trailer X}] x [{X y}]", nil, true},
		"interim":      {"GET", "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + ok + "Content-Length: 1\r\n\r\nx", "103 [{Link a}], 100 [], 200 1 [] x", nil, true},
		"close":        {"GET", ok + "Connection: close\r\nContent-Length: 1\r\n\r\nx", "200 1 [] x", nil, false},
		// What comes unasked and late only a look at the socket shows, so these come in one piece.
		"too much":         {"GET", ok + "Content-Length: 1\r\n\r\nxy", "200 1 [] x", nil, false},
		"much after 204":   {"GET", "HTTP/1.1 204 No Content\r\n\r\nxy", "204 -1 [] ", nil, false},
		"after chunks":     {"GET", ok + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nx", "200 -1 [] ", nil, false},
		"to the end":       {"GET", ok + "\r\nall of it|", "200 -1 [] all of it", nil, false},
		"1.0":              {"GET", "HTTP/1.0 200 OK\r\nA: b\r\n\r\nall of it|", "200 -1 [{A b}] all of it", nil, false},
		"LF":               {"GET", "HTTP/1.1 200 OK\nContent-Length: 1\n\nx", "200 1 [] x", nil, false},
		"LF, interim":      {"GET", "HTTP/1.1 103 Early Hints\nLink: a\n\n" + ok + "Content-Length: 1\r\n\r\nx", "103 [{Link a}], 200 1 [] x", nil, false},
		"1.0, length":      {"GET", "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nxy", "200 1 [] x", nil, false},
		"1.0, HEAD":        {"HEAD", "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", "200 5 [] ", nil, false},
		"LF, cut":          {"GET", "HTTP/1.1 200 OK\nContent-Length: 5\n\nhe|", "200 5 [] he", io.ErrUnexpectedEOF, false},
		"LF, large head":   {"GET", "HTTP/1.1 200 OK\nA: " + strings.Repeat("x", 100<<10) + "\nContent-Length: 1\n\nx", "200 1 [{A " + strings.Repeat("x", 100<<10) + "}] x", nil, false},
		"general trailers": {"GET", ok + "Pragma: x\r\nConnection: B\r\nB: c\r\nTrailer: X\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX: y\r\n\r\n", "200 -1 [{Trailer X} {Pragma x}] x [{X y}]", nil, false},
		"cut":              {"GET", ok + "Content-Length: 5\r\n\r\nhe|", "200 5 [] he", io.ErrUnexpectedEOF, false},
		"cut chunks":       {"GET", ok + "Transfer-Encoding: chunked\r\n\r\n5\r\nhe|", "200 -1 [] he", io.ErrUnexpectedEOF, false},
		"cut trailers":     {"GET", ok + "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n|", "200 -1 [] x", io.ErrUnexpectedEOF, false},
		"cut head":         {"GET", ok + "Content-|", "", io.EOF, false},
		"no answer":        {"GET", "|", "", io.EOF, false},
		"bad chunks":       {"GET", ok + "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\nz\r\n\r\n", "200 -1 [] x", nil, false},
		"not HTTP":         {"GET", "hello\r\n\r\n|", "", errMalformed, false},
		"other protocol":   {"GET", "HTTP/1.1 101 Switching Protocols\r\n\r\n", "", errMalformed, false},
		"another protocol": {"GET", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\r\n", "", errMalformed, false},
		"large head":       {"GET", ok + "A: " + strings.Repeat("x", 100<<10) + "\r\nContent-Length: 0\r\n\r\n", "200 0 [{A " + strings.Repeat("x", 100<<10) + "}] ", nil, true},
		"too large a one":  {"GET", ok + strings.Repeat("A: "+strings.Repeat("x", 100<<10)+"\r\n", 11) + "\r\n", "", errTooLarge, false},
		"interim ad lib":   {"GET", strings.Repeat("HTTP/1.1 103 Early Hints\r\nA: "+strings.Repeat("x", 10<<10)+"\r\n\r\n", 110), "*", errTooLarge, false},
	}
	for name, tt := range tests {
		unasked := name == "too much" || name == "much after 204" || name == "after chunks"
		for _, pieces := range []bool{false, true} {
			for _, wrap := range []bool{false, true} {
				t.Run(fmt.Sprint(name, pieces, wrap), func(t *testing.T) {
					s := newServer(t, func(c net.Conn, r *http.Request) bool {
						raw, ends := strings.CutSuffix(tt.raw, "|")
						if pieces && len(raw) < 1<<10 && !unasked {
							for i := range len(raw) {
								io.WriteString(c, raw[i:i+1])
							}
						} else {
							io.WriteString(c, raw)
						}
						return !ends
					})
					p := s.pool(t, wrap)
					message := tt.method + " / HTTP/1.1\r\nHost: h\r\n\r\n"
					for range 2 {
						got, err := ask(t.Context(), p, tt.method, message)
						if got != tt.want && tt.want != "*" {
							t.Errorf("got %.200q, want %.200q", got, tt.want)
						}
						if tt.err == nil && err != nil && name != "bad chunks" || tt.err != nil && !errors.Is(err, tt.err) || errors.Is(err, ErrNotStarted) {
							t.Errorf("error %v, want %v", err, tt.err)
						}
					}
					if kept := s.conns.Load() == 1; kept != tt.keeps {
						t.Errorf("%d connections for two requests", s.conns.Load())
					}
				})
			}
		}
	}
}

// A connection that ended while it was idle is seen before anything is written.
func TestStaleConnections(t *testing.T) {
	s := newServer(t, func(c net.Conn, r *http.Request) bool {
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		return false
	})
	p := s.pool(t, false)
	dial := p.Dial
	p.Dial = func(ctx context.Context) (net.Conn, error) {
		c, err := dial(ctx)
		if err == nil && s.conns.Load()%2 == 1 {
			c = overSocket{c}
		}
		return c, err
	}
	for range 50 {
		if _, err := ask(t.Context(), p, "GET", get); err != nil {
			t.Fatal(err)
		}
		p.mu.Lock()
		raw := p.idle[0].bare
		p.mu.Unlock()
		if err := raw.Read(func(fd uintptr) bool { return fdEnded(fd) }); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.conns.Load(); n != 50 {
		t.Errorf("%d connections", n)
	}
}

// overSocket is no socket but says which one it is over, as a connection of TLS does.
type overSocket struct{ net.Conn }

func (c overSocket) NetConn() net.Conn { return c.Conn }

func fdEnded(fd uintptr) bool {
	n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return n == 0 && err == nil
}

// What may have left is not sent again, what has not is.
func TestRepeats(t *testing.T) {
	var requests atomic.Int64
	s := newServer(t, func(c net.Conn, r *http.Request) bool {
		if requests.Add(1) == 2 {
			return false // in the middle of its second request
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		return true
	})
	p := s.pool(t, false)
	_, first := ask(t.Context(), p, "GET", get)
	_, second := ask(t.Context(), p, "GET", get)
	if first != nil || second == nil || errors.Is(second, ErrNotStarted) || requests.Load() != 2 {
		t.Errorf("%v, then %v, after %d requests", first, second, requests.Load())
	}
	dials, good := 0, p.Dial
	p.Dial = func(ctx context.Context) (net.Conn, error) {
		c, err := good(ctx)
		if dials++; err == nil {
			c = &brokenConn{Conn: c}
		}
		return c, err
	}
	if _, err := ask(t.Context(), p, "GET", get); !errors.Is(err, ErrNotStarted) || dials != freshTries {
		t.Errorf("%v after %d dials", err, dials)
	}
	p.Dial = func(context.Context) (net.Conn, error) { return nil, syscall.ECONNREFUSED }
	if _, err := ask(t.Context(), p, "GET", get); !errors.Is(err, ErrNotStarted) || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v from a dial that failed", err)
	}
}

type brokenConn struct{ net.Conn }

func (c *brokenConn) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// A message larger than the buffers of the sockets goes out, and a server that
// answers and closes without reading it is understood if its answer comes.
func TestLargeMessages(t *testing.T) {
	s := newServer(t, func(c net.Conn, r *http.Request) bool {
		n, err := io.Copy(io.Discard, r.Body)
		text := fmt.Sprint(n, err)
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
		return true
	})
	p := s.pool(t, false)
	const size = 20 << 20
	message := fmt.Sprintf("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("x", size))
	for range 2 {
		if got, err := ask(t.Context(), p, "PUT", message); err != nil || !strings.Contains(got, fmt.Sprint(size, nil)) {
			t.Errorf("%q, %v", got, err)
		}
	}
	if s.conns.Load() != 1 {
		t.Errorf("%d connections", s.conns.Load())
	}
}

func TestInterrupt(t *testing.T) {
	for _, watched := range []bool{false, true} {
		for _, part := range []string{"", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe"} {
			reached, ended := make(chan struct{}), make(chan struct{})
			s := newServer(t, func(c net.Conn, r *http.Request) bool {
				io.WriteString(c, part)
				close(reached)
				c.Read(make([]byte, 1))
				close(ended)
				return false
			})
			p := s.pool(t, false)
			ctx, cancel := context.WithCancelCause(t.Context())
			gone := errors.New("gone")
			x := p.Begin()
			x.Method, x.Watched, x.Message = "GET", watched, append(x.Message, get...)
			go func() {
				<-reached
				cancel(gone)
				if watched {
					x.Interrupt()
				}
			}()
			err := x.Do(ctx)
			for err == nil {
				_, err = x.Next()
			}
			if err != gone {
				t.Errorf("%v", err)
			}
			x.Close()
			<-ended // the connection is closed
		}
	}
}

// Requests wait for one of the connections, and give up with their context.
func TestBound(t *testing.T) {
	release := make(chan struct{})
	var now atomic.Int64
	s := newServer(t, func(c net.Conn, r *http.Request) bool {
		if now.Add(1) > 2 {
			t.Error("three at one time")
		}
		<-release
		now.Add(-1)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		return true
	})
	p := s.pool(t, false)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { ask(t.Context(), p, "GET", get) })
	}
	for now.Load() < 2 {
		runtime.Gosched()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ask(ctx, p, "GET", get); !errors.Is(err, ErrNotStarted) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	for range 20 {
		wg.Go(func() {
			if _, err := ask(t.Context(), p, "GET", get); err != nil {
				t.Error(err)
			}
		})
	}
	close(release)
	wg.Wait()
	if s.conns.Load() > 2 {
		t.Errorf("%d connections", s.conns.Load())
	}
}

// Connections that lie idle are closed in time, and all of them with the pool.
func TestIdleConnectionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open atomic.Int64
		p := &Pool{Conns: 10, Dial: func(context.Context) (net.Conn, error) {
			near, far := net.Pipe()
			open.Add(1)
			go func() {
				defer open.Add(-1)
				in := bufio.NewReader(far)
				for {
					if _, err := http.ReadRequest(in); err != nil {
						return
					}
					io.WriteString(far, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}
			}()
			return near, nil
		}}
		burst := func(n int) {
			var all []*Exchange
			for range n {
				x := p.Begin()
				x.Method, x.Message = "GET", append(x.Message, get...)
				c, err := p.get(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				x.ctx = t.Context()
				x.use(c)
				all = append(all, x)
			}
			for _, x := range all {
				x.release(true)
				x.Close()
			}
			synctest.Wait()
		}
		burst(5)
		for range 10 { // one of the five stays in use
			time.Sleep(idlePeriod / 2)
			if _, err := ask(t.Context(), p, "GET", get); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if n := open.Load(); n != 1 {
			t.Errorf("%d connections while one is used", n)
		}
		time.Sleep(3 * idlePeriod)
		synctest.Wait()
		if n := open.Load(); n != 0 {
			t.Errorf("%d connections long after the last use", n)
		}
		burst(3)
		x := p.Begin()
		c, err := p.get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		x.use(c)
		p.Close()
		p.Close()
		synctest.Wait()
		if n := open.Load(); n != 1 {
			t.Errorf("%d connections after Close, one of them in use", n)
		}
		x.release(true)
		x.Close()
		synctest.Wait()
		if n := open.Load(); n != 0 {
			t.Errorf("%d connections after their use", n)
		}
	})
}
