package hop1

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/keyway-go/keyway/internal/wire/sock"
)

// link is a connection to a listener, and its other end.
type link struct {
	net.Listener
	near, far net.Conn
}

// newLink makes a link, which over "far" looks like one between two machines.
func newLink(t *testing.T, network string) *link {
	t.Helper()
	addr, dialer := "127.0.0.1:0", new(net.Dialer)
	switch network {
	case "unix":
		addr = filepath.Join(t.TempDir(), "s")
	case "far":
		network, addr, dialer.LocalAddr = "tcp", "127.0.0.2:0", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	near, err := dialer.Dial(network, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return &link{l, near, far}
}

// pool returns a pool that has the near end and uses it without a look at it.
func (l *link) pool(t *testing.T, dialed func(*link) error) *Pool {
	p := &Pool{Conns: 1, idle: []*conn{newConn(l.near)}, Dial: func(ctx context.Context) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, l.Addr().Network(), l.Addr().String())
		if err == nil && dialed != nil {
			if err := dialed(l); err != nil {
				c.Close()
				return nil, err
			}
		}
		return c, err
	}}
	t.Cleanup(p.Close)
	return p
}

// serve answers a request on the far end, which the pool keeps then.
func (l *link) serve(t *testing.T, p *Pool) {
	t.Helper()
	go func() {
		l.read(t)
		io.WriteString(l.far, "HTTP/1.1 204 No Content\r\n\r\n")
	}()
	if _, err := ask(t.Context(), p, "GET", get); err != nil {
		t.Fatal(err)
	}
	p.idle[0].pooled = false
}

// read reads a request to its end.
func (l *link) read(t *testing.T) {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(l.far))
	if err == nil {
		_, err = io.Copy(io.Discard, r.Body)
	}
	if err != nil {
		t.Error(err)
	}
}

func (l *link) endSending(t *testing.T) {
	if err := l.far.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Error(err)
	}
}

// awaitState waits until a look at c shows that.
func awaitState(t *testing.T, c net.Conn, want sock.State) {
	t.Helper()
	var got sock.State
	err := sock.Raw(c).Read(func(fd uintptr) bool { got = sock.Look(fd); return got != sock.Silent })
	if err != nil || got != want {
		t.Errorf("a look at the connection shows %d, %v, want %d", got, err, want)
	}
}

// waysToAsk send a request with that body, and return the error.
var waysToAsk = map[string]func(t *testing.T, p *Pool, body string) error{
	"exchange": func(t *testing.T, p *Pool, body string) error {
		message := get
		if body != "" {
			message = fmt.Sprintf("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		}
		_, err := ask(t.Context(), p, "GET", message)
		return err
	},
	"round trip": func(t *testing.T, p *Pool, body string) error {
		r := request(t, "PUT", strings.NewReader(body))
		if body == "" {
			r.Body = nil
		}
		res, err := p.RoundTrip(r)
		if err == nil {
			res.Body.Close()
		}
		return err
	},
}

// What the end of a connection tells of the request that was written to it.
func TestTrapWhatHasNotStarted(t *testing.T) {
	const never, bodiless, always = 0, 1, 2                      // whether the request has provably not started
	bodies := []string{"", "body", strings.Repeat("x", 256<<10)} // the last one in several writes
	for name, tt := range map[string]struct {
		before    func(t *testing.T, l *link) // the request is written
		after     func(t *testing.T, l *link) // it has come
		dialed    func(l *link) error         // another connection is made
		tcp, unix int
	}{
		"closed before":       {before: func(t *testing.T, l *link) { l.Close(); l.far.Close() }, tcp: always, unix: always},
		"unread, it lives":    {after: func(t *testing.T, l *link) { l.far.Close() }, tcp: never, unix: bodiless},
		"unread, it has gone": {after: func(t *testing.T, l *link) { l.Close(); l.far.Close() }, tcp: bodiless, unix: bodiless},
		"unread, it goes":     {after: func(t *testing.T, l *link) { l.far.Close() }, dialed: func(l *link) error { return l.Close() }, tcp: bodiless, unix: bodiless},
		"unread, it goes as it is dialed": {after: func(t *testing.T, l *link) { l.far.Close() }, dialed: func(l *link) error {
			l.Close()
			return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNRESET)}
		}, tcp: bodiless, unix: bodiless},
		"begun to read, it has gone": {after: func(t *testing.T, l *link) {
			l.far.Read(make([]byte, 10))
			l.Close()
			l.far.Close()
		}, tcp: bodiless, unix: bodiless},
		"read, it has gone":           {after: func(t *testing.T, l *link) { l.read(t); l.Close(); l.far.Close() }},
		"read behind the end it sent": {before: func(t *testing.T, l *link) { l.endSending(t) }, after: func(t *testing.T, l *link) { l.read(t); l.far.Close() }},
		"read and reset": {after: func(t *testing.T, l *link) {
			l.read(t)
			if tcp, ok := l.far.(*net.TCPConn); ok {
				tcp.SetLinger(0)
			}
			l.far.Close()
		}},
	} {
		for _, network := range []string{"tcp", "unix", "far"} {
			want := map[string]int{"tcp": tt.tcp, "unix": tt.unix}[network]
			for way, do := range waysToAsk {
				for _, body := range bodies {
					for _, used := range []bool{false, true} {
						t.Run(fmt.Sprintf("%s/%s/%s/%d/used=%v", name, network, way, len(body), used), func(t *testing.T) {
							l := newLink(t, network)
							p := l.pool(t, tt.dialed)
							if used {
								l.serve(t, p)
							}
							if tt.before != nil {
								tt.before(t, l)
								awaitState(t, l.near, sock.Ended)
							}
							ended := make(chan struct{})
							go func() {
								defer close(ended)
								if tt.after != nil {
									awaitState(t, l.far, sock.Pending)
									tt.after(t, l)
								}
							}()
							err := do(t, p, body)
							<-ended // what the far end does, if it does anything
							if got := errors.Is(err, ErrNotStarted); got != (want == always || want == bodiless && body == "") {
								t.Errorf("provably not started: %v (%v)", got, err)
							}
						})
					}
				}
			}
		}
	}
}

// A part of an upload that the server has read may have run, although it closed the
// connection before the rest came.
func TestTrapPartOfAnUploadMayHaveRun(t *testing.T) {
	l := newLink(t, "tcp")
	p := l.pool(t, nil)
	body, rest := io.Pipe()
	go func() {
		head := bufio.NewReader(l.far)
		if r, err := http.ReadRequest(head); err != nil || r.ContentLength >= 0 {
			t.Errorf("%v, %v", r, err)
		}
		l.far.Close()
		awaitState(t, l.near, sock.Ended)
		for err := error(nil); err == nil; {
			_, err = rest.Write(make([]byte, 1<<20))
		}
	}()
	if _, err := p.RoundTrip(request(t, "PUT", body)); err == nil || errors.Is(err, ErrNotStarted) {
		t.Errorf("error %v, want one of a request that may have run", err)
	}
}

// A request that had come too late for its connection goes out on another one, if all
// of it is still there.
func TestLateRequestsAreRepeated(t *testing.T) {
	for way, do := range waysToAsk {
		for _, body := range []string{"", "body"} {
			l := newLink(t, "tcp")
			p := l.pool(t, nil)
			l.far.Close()
			awaitState(t, l.near, sock.Ended)
			go func() {
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
					t.Error(err)
				}
				io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
			}()
			err := do(t, p, body)
			if streams := way == "round trip" && body != ""; (err == nil) == streams || streams && !errors.Is(err, ErrNotStarted) {
				t.Errorf("%s %q: %v", way, body, err)
			}
			l.Close()
		}
	}
}
