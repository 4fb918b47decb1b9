package hop1

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func request(t *testing.T, method string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://h/", body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// unsized hides how long a body is.
type unsized struct{ io.Reader }

// Requests with and without bodies of known length go over one connection.
func TestRoundTrip(t *testing.T) {
	s := newServer(t, func(c net.Conn, r *http.Request) bool {
		body, err := io.ReadAll(r.Body)
		text := fmt.Sprint(r.Method, " ", len(body), " ", r.Trailer.Get("X-Sum"), " ", err)
		fmt.Fprintf(c, "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n%x\r\n%s\r\n0\r\nX-Sum: 42\r\n\r\n", len(text), text)
		return true
	})
	p := s.pool(t, false)
	for _, tt := range []struct {
		method string
		size   int
		sized  bool
		want   string
	}{
		{"GET", 0, true, "GET 0  <nil>"},
		{"POST", 10, true, "POST 10  <nil>"},
		{"POST", 1 << 20, true, "POST 1048576  <nil>"},
		{"PUT", 1 << 20, false, "PUT 1048576 7 <nil>"},
		{"PUT", 0, false, "PUT 0 7 <nil>"},
	} {
		var body io.Reader
		if tt.size > 0 || !tt.sized {
			body = strings.NewReader(strings.Repeat("x", tt.size))
		}
		if !tt.sized {
			body = unsized{body}
		}
		r := request(t, tt.method, body)
		if !tt.sized {
			r.ContentLength = -1
			r.Trailer = http.Header{"X-Sum": {"7"}}
		}
		interim := 0
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			if interim++; code != 103 || h.Get("Link") != "a" {
				t.Errorf("interim answer %d %v", code, h)
			}
			return nil
		}}))
		res, err := p.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(res.Body)
		if string(got) != tt.want || err != nil || interim != 1 || res.Trailer.Get("X-Sum") != "42" {
			t.Errorf("got %q, %v, %d interim answers, trailer %v; want %q", got, err, interim, res.Trailer, tt.want)
		}
		res.Body.Close()
	}
	if n := s.conns.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// A body is the same whether its reader has room for much or for little at a time, and the
// connection is kept.
func TestLargeReads(t *testing.T) {
	part := strings.Repeat("0123456789", 2000)
	s := newServer(t, func(c net.Conn, r *http.Request) bool {
		if r.URL.Path == "/chunked" {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+strings.Repeat(fmt.Sprintf("%x\r\n%s\r\n", len(part), part), 5)+"0\r\nX-Sum: 42\r\n\r\n")
		} else {
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", 5*len(part), strings.Repeat(part, 5))
		}
		return true
	})
	p := s.pool(t, false)
	for path, sum := range map[string]string{"/chunked": "42", "/sized": ""} {
		for _, size := range []int{1, 1000, bufferSize - 1, bufferSize, 1 << 20} {
			r := request(t, "GET", nil)
			r.URL.Path = path
			res, err := p.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			_, err = io.CopyBuffer(&got, struct{ io.Reader }{res.Body}, make([]byte, size))
			if err != nil || got.String() != strings.Repeat(part, 5) || res.Trailer.Get("X-Sum") != sum {
				t.Errorf("%s, %d bytes at a time: %d bytes, %v, trailer %v", path, size, got.Len(), err, res.Trailer)
			}
			res.Body.Close()
		}
	}
	if n := s.conns.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// A request whose context has ended is not sent, though there is a connection.
func TestTrapNothingIsSentAfterTheContext(t *testing.T) {
	var got, want atomic.Int64
	t.Cleanup(func() { // when the server has ended
		if got.Load() != want.Load() {
			t.Errorf("the server got %d requests, want %d", got.Load(), want.Load())
		}
	})
	s := newServer(t, func(c net.Conn, r *http.Request) bool {
		got.Add(1)
		io.Copy(io.Discard, r.Body)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		return true
	})
	p := s.pool(t, false)
	ended, end := context.WithCancel(t.Context())
	end()
	for range 200 {
		for _, send := range []func() error{
			func() error { _, err := ask(ended, p, "GET", get); return err },
			func() error { _, err := p.RoundTrip(request(t, "GET", nil).WithContext(ended)); return err },
			func() error {
				_, err := p.RoundTrip(request(t, "POST", strings.NewReader("x")).WithContext(ended))
				return err
			},
		} {
			if _, err := ask(t.Context(), p, "GET", get); err != nil { // and leaves a connection
				t.Fatal(err)
			}
			want.Add(1)
			if err := send(); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		}
	}
}

func TestRoundTripFails(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for name, tt := range map[string]struct {
		raw  string // the answer; | ends the connection
		head error
		body error
	}{
		"no answer":      {raw: "|", head: io.EOF},
		"too large":      {raw: ok + strings.Repeat("A: "+strings.Repeat("x", 100<<10)+"\r\n", 11), head: errTooLarge},
		"interim ad lib": {raw: strings.Repeat("HTTP/1.1 103 Early Hints\r\nA: "+strings.Repeat("x", 10<<10)+"\r\n\r\n", 110), head: errTooLarge},
		"unasked":        {raw: "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", head: errMalformed},
		"no status":      {raw: strings.Repeat("HTTP/1.1 000 X\r\n\r\n", 2), head: errMalformed},
		"cut":            {raw: ok + "Content-Length: 5\r\n\r\nhe|", body: io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, func(c net.Conn, r *http.Request) bool {
				raw, ends := strings.CutSuffix(tt.raw, "|")
				io.WriteString(c, raw)
				return !ends
			})
			p := s.pool(t, false)
			res, err := p.RoundTrip(request(t, "GET", nil))
			if !errors.Is(err, tt.head) {
				t.Fatalf("error %v, want %v", err, tt.head)
			}
			if err != nil {
				return
			}
			if _, err := io.ReadAll(res.Body); !errors.Is(err, tt.body) {
				t.Errorf("error %v, want %v", err, tt.body)
			}
			res.Body.Close()
		})
	}
	p := &Pool{Dial: func(context.Context) (net.Conn, error) { return nil, io.ErrClosedPipe }}
	for range 2 { // the pool's one turn is given back
		if _, err := p.RoundTrip(request(t, "GET", nil)); !errors.Is(err, ErrNotStarted) || !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%v from a dial that failed", err)
		}
	}
}

// An answer that comes before the request's body has ended is passed on, and no
// other request follows on its connection.
func TestRoundTripEarlyAnswer(t *testing.T) {
	s := newServer(t, func(c net.Conn, r *http.Request) bool {
		io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
		return r.ContentLength == 0
	})
	p := s.pool(t, false)
	body, more := io.Pipe()
	defer more.Close()
	res, err := p.RoundTrip(request(t, "POST", body))
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(res.Body)
	if string(got) != "no" || err != nil || res.StatusCode != 413 {
		t.Errorf("%d %q, %v", res.StatusCode, got, err)
	}
	res.Body.Close()
	if len(p.idle) > 0 {
		t.Error("the connection is kept")
	}
}

// A body that is offered is read when the server asks for it, and not at all if
// it does not.
func TestRoundTripOffersBodies(t *testing.T) {
	s := newServer(t, func(c net.Conn, r *http.Request) bool {
		if r.Header.Get("Expect") != "100-continue" || !slices.Equal(r.TransferEncoding, []string{"chunked"}) {
			t.Errorf("the server sees %v %v", r.Header, r.TransferEncoding)
		}
		io.WriteString(c, "HTTP/1.1 103 Early Hints\r\n\r\n")
		if r.URL.Path == "/refused" {
			io.WriteString(c, "HTTP/1.1 421 Misdirected\r\nContent-Length: 0\r\n\r\n")
			if n, _ := c.Read(make([]byte, 1)); n > 0 {
				t.Error("the body came unasked")
			}
			return false
		}
		io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
		body, err := io.ReadAll(r.Body)
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n%d %v", len(body), err)
		return true
	})
	p := s.pool(t, false)
	for path, want := range map[string]struct {
		asked  int
		answer string
	}{"/asked": {1, "3 <nil>"}, "/refused": {0, ""}} {
		for _, method := range []string{"GET", "POST"} {
			body := &countedBody{left: 3, closed: make(chan struct{})}
			r := request(t, method, body)
			r.URL.Path, r.Header["Expect"] = path, []string{"100-continue"}
			asked := 0
			r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{Got100Continue: func() { asked++ }}))
			res, err := p.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(res.Body)
			res.Body.Close()
			<-body.closed
			if string(answer) != want.answer || err != nil || asked != want.asked || (body.reads > 0) != (asked > 0) {
				t.Errorf("%s %s: %q, %v, asked %d times, %d reads", method, path, answer, err, asked, body.reads)
			}
		}
	}
}

// countedBody is a body that counts what is done with it.
type countedBody struct {
	left, reads int
	closed      chan struct{}
}

func (b *countedBody) Read(p []byte) (int, error) {
	b.reads++
	n := min(len(p), b.left)
	if b.left -= n; n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (b *countedBody) Close() error {
	close(b.closed)
	return nil
}

// shortConn takes so many bytes, and ends.
type shortConn struct {
	net.Conn
	takes int
}

func (c *shortConn) Write(b []byte) (int, error) {
	n, _ := c.Conn.Write(b[:min(len(b), c.takes)])
	c.takes = 0
	_ = c.Conn.(*net.TCPConn).CloseWrite()
	return n, io.ErrClosedPipe
}

// A request of which nothing could be written was not sent, and its body is
// whole. One of which a byte was written may have been.
func TestRoundTripNotSent(t *testing.T) {
	s := newServer(t, func(net.Conn, *http.Request) bool {
		t.Error("the server has a request")
		return false
	})
	for takes := range 2 {
		p := s.pool(t, false)
		dial := p.Dial
		p.Dial = func(ctx context.Context) (net.Conn, error) {
			c, err := dial(ctx)
			return &shortConn{c, takes}, err
		}
		for range 3 { // the pool's two turns are given back
			body := &countedBody{left: 3, closed: make(chan struct{})}
			for _, b := range []io.Reader{nil, body} {
				if _, err := p.RoundTrip(request(t, "PUT", b)); err == nil || errors.Is(err, ErrNotStarted) != (takes == 0) {
					t.Errorf("%d bytes taken: %v", takes, err)
				}
			}
			if <-body.closed; body.reads > 0 {
				t.Error("the body was read")
			}
		}
	}
}

// A connection that is given up is half-closed, and closed when the server has
// closed it.
func TestGivingUp(t *testing.T) {
	gone := errors.New("gone")
	exchange := func(ctx context.Context, p *Pool) error {
		x := p.Begin()
		defer x.Close()
		x.Method, x.Message = "GET", append(x.Message, get...)
		err := x.Do(ctx)
		for err == nil {
			_, err = x.Next()
		}
		return err
	}
	roundTrip := func(ctx context.Context, p *Pool) error {
		req := request(t, "GET", nil).WithContext(ctx)
		req.Header.Set("Upgrade", "x")
		res, err := p.RoundTrip(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if res.StatusCode == http.StatusSwitchingProtocols { // net/http's proxy closes it twice
			defer res.Body.Close()
		}
		_, err = io.Copy(io.Discard, res.Body)
		return err
	}
	for name, tt := range map[string]struct {
		part string
		do   func(context.Context, *Pool) error
	}{
		"before the answer":              {"", exchange},
		"within the answer":              {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe", exchange},
		"by way of net/http":             {"", roundTrip},
		"within the answer, by net/http": {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe", roundTrip},
		"after a change of protocol":     {"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nhe", roundTrip},
	} {
		t.Run(name, func(t *testing.T) {
			var closed atomic.Bool
			reached := make(chan struct{}, 1)
			s := newServer(t, func(c net.Conn, r *http.Request) bool {
				io.WriteString(c, tt.part)
				reached <- struct{}{}
				if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
					t.Errorf("the server read %d bytes, %v, want the end", n, err)
				}
				for range 20 { // more than fits into what nobody reads
					if _, err := c.Write(make([]byte, 1<<20)); err != nil {
						t.Errorf("the server cannot write: %v", err)
					}
				}
				closed.Store(true)
				return false
			})
			p := s.pool(t, false)
			p.Grace, p.Overdue = time.Hour, func(context.Context) { t.Error("overdue") }
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				<-reached
				cancel(gone)
			}()
			if err := tt.do(ctx, p); !errors.Is(err, gone) {
				t.Errorf("error %v, want %v", err, gone)
			}
			if !closed.Load() {
				t.Error("the server has not closed the connection")
			}
		})
	}
	t.Run("overdue", func(t *testing.T) {
		reached, release := make(chan struct{}), make(chan struct{})
		s := newServer(t, func(c net.Conn, r *http.Request) bool {
			reached <- struct{}{}
			<-release
			return false
		})
		defer close(release)
		p := s.pool(t, false)
		type key struct{}
		overdue := 0
		p.Grace, p.Overdue = 10*time.Millisecond, func(ctx context.Context) {
			if overdue++; ctx.Value(key{}) != 1 {
				t.Error("another context")
			}
		}
		for _, do := range []func(context.Context, *Pool) error{exchange, roundTrip} {
			ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, 1))
			go func() {
				<-reached
				cancel(context.DeadlineExceeded)
			}()
			if err := do(ctx, p); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		}
		if overdue != 2 {
			t.Errorf("%d overdue", overdue)
		}
	})
}
