//go:build linux

// Package origin is what stands behind the proxies: servers that answer with a
// given number of bytes and do as little else as possible, so that the proxy
// is what a measurement shows. The path /100 asks for 100 bytes.
package origin

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/loadtest/internal/rawio"
)

// MaxSize is the largest answer in bytes.
const MaxSize = 16 << 20

var (
	errSize      = errors.New("origin: the path is not a number of bytes")
	errMalformed = errors.New("origin: malformed request")
)

// Guard runs answer while it holds a key. A guard that returns an error has
// not run it.
type Guard func(key string, answer func()) error

// HTTP answers HTTP/1.1 requests without bodies on several listeners, in one
// loop over epoll. The zero value is ready.
type HTTP struct {
	poll    *rawio.Poll
	conns   map[int32]*conn
	accepts map[int32]listener // by the file descriptor
	answers map[string][]byte
	sizes   Sizes
	in      []byte
}

type listener struct {
	fd    int
	tcp   bool
	guard Guard
}

type conn struct {
	fd    int
	guard Guard
	part  []byte // the beginning of a request whose end has not come
	out   []byte // what the socket has not taken yet
}

// Socket is what listens: a [*net.TCPListener] or a [*net.UnixListener].
type Socket interface {
	Addr() net.Addr
	File() (*os.File, error)
}

// Listener is a listener and what guards its requests; nil for nothing.
type Listener struct {
	Net   Socket
	Guard Guard
}

// Serve serves for ever, or until something fails that should not.
func (s *HTTP) Serve(listeners ...Listener) error {
	s.conns, s.accepts, s.answers = make(map[int32]*conn), make(map[int32]listener), make(map[string][]byte)
	s.in = make([]byte, 64<<10)
	var err error
	if s.poll, err = rawio.NewPoll(); err != nil {
		return fmt.Errorf("origin: %w", err)
	}
	for _, l := range listeners {
		f, err := l.Net.File() // a duplicate that epoll and nobody else watches
		if err != nil {
			return fmt.Errorf("origin: %w", err)
		}
		defer f.Close()
		fd := int(f.Fd())
		if err := errors.Join(unix.SetNonblock(fd, true), s.poll.Watch(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN)); err != nil {
			return fmt.Errorf("origin: %w", err)
		}
		s.accepts[int32(fd)] = listener{fd: fd, tcp: l.Net.Addr().Network() == "tcp", guard: l.Guard}
	}
	for {
		ready, err := s.poll.Wait(-1)
		if err != nil {
			return fmt.Errorf("origin: %w", err)
		}
		for _, e := range ready {
			s.handle(e)
		}
	}
}

func (s *HTTP) handle(e unix.EpollEvent) {
	c := s.conns[e.Fd]
	if c == nil {
		if l, ok := s.accepts[e.Fd]; ok {
			s.accept(l)
		}
		return
	}
	var err error
	if e.Events&unix.EPOLLOUT != 0 {
		err = s.flush(c)
	}
	if err == nil && e.Events&^unix.EPOLLOUT != 0 {
		err = s.receive(c)
	}
	if err != nil {
		delete(s.conns, e.Fd)
		unix.Close(c.fd)
	}
}

func (s *HTTP) accept(l listener) {
	for {
		fd, _, err := unix.Accept4(l.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		if err != nil {
			return
		}
		if l.tcp {
			err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		}
		if errors.Join(err, s.poll.Watch(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN)) != nil {
			unix.Close(fd)
			return
		}
		s.conns[int32(fd)] = &conn{fd: fd, guard: l.guard}
	}
}

func (s *HTTP) receive(c *conn) error {
	n, err := rawio.Receive(c.fd, s.in)
	if n == 0 || err != nil {
		return err
	}
	in := s.in[:n]
	if len(c.part) > 0 {
		in = append(c.part, in...)
		c.part = nil
	}
	for {
		end := bytes.Index(in, []byte("\r\n\r\n"))
		if end < 0 {
			break
		}
		if err := s.answer(c, in[:end+2]); err != nil {
			return err
		}
		in = in[end+4:]
	}
	if len(in) > 0 {
		c.part = append([]byte(nil), in...)
	}
	return nil
}

func (s *HTTP) answer(c *conn, head []byte) error {
	rest, ok := bytes.CutPrefix(head, []byte("GET "))
	path, _, found := bytes.Cut(rest, []byte(" "))
	if !ok || !found {
		return errMalformed
	}
	answer := s.answers[string(path)]
	if answer == nil {
		body, err := s.sizes.body(string(path))
		if err != nil {
			return err
		}
		answer = fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n", len(body))
		answer = append(answer, body...)
		s.answers[string(path)] = answer
	}
	if c.guard == nil {
		return s.send(c, answer)
	}
	key, err := url.PathUnescape(field(head, []byte("\r\nKeyway-Key: ")))
	if err != nil {
		return errMalformed
	}
	var sent error
	if c.guard(key, func() { sent = s.send(c, answer) }) != nil {
		sent = s.send(c, []byte("HTTP/1.1 503 Service Unavailable\r\nKeyway-Refused: unavailable\r\nContent-Length: 0\r\n\r\n"))
	}
	return sent
}

// field returns the value of a field that is spelled as its sender spells it.
func field(head, name []byte) string {
	_, value, _ := bytes.Cut(head, name)
	value, _, _ = bytes.Cut(value, []byte("\r\n"))
	return string(value)
}

// send sends b, which never changes, or keeps what the socket does not take.
func (s *HTTP) send(c *conn, b []byte) error {
	if len(c.out) > 0 {
		c.out = append(bytes.Clone(c.out), b...)
		return nil
	}
	n, err := rawio.Write(c.fd, b)
	if n == len(b) || err != nil && err != unix.EAGAIN {
		return err
	}
	c.out = b[n:]
	return s.poll.Watch(unix.EPOLL_CTL_MOD, c.fd, unix.EPOLLOUT)
}

// flush sends what was kept; no requests are read before it is gone.
func (s *HTTP) flush(c *conn) error {
	n, err := rawio.Write(c.fd, c.out)
	if err != nil && err != unix.EAGAIN {
		return err
	}
	if c.out = c.out[n:]; len(c.out) > 0 {
		return nil
	}
	c.out = nil
	return s.poll.Watch(unix.EPOLL_CTL_MOD, c.fd, unix.EPOLLIN)
}

// Sizes answers with as many bytes as the path asks for: as an http.Handler,
// and over the link. The zero value is ready.
type Sizes struct{ bodies sync.Map } // []byte by path

func (s *Sizes) body(path string) ([]byte, error) {
	if b, ok := s.bodies.Load(path); ok {
		return b.([]byte), nil
	}
	size, err := strconv.Atoi(path[min(1, len(path)):])
	if err != nil || size < 0 || size > MaxSize {
		return nil, fmt.Errorf("%w: %q", errSize, path)
	}
	b := bytes.Repeat([]byte("x"), size)
	s.bodies.Store(path, b)
	return b, nil
}

// ServeHTTP implements [http.Handler].
func (s *Sizes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := s.body(r.URL.Path)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	h := w.Header()
	h["Content-Type"] = []string{"text/plain"}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	_, _ = w.Write(body) // fails if the client has gone
}

// ServeLink is a [LinkHandler].
func (s *Sizes) ServeLink(w *link.ResponseWriter, r *link.ServerRequest) {
	body, err := s.body(r.Target)
	if err != nil {
		_ = w.WriteHead(http.StatusNotFound, 0, nil)
		return
	}
	var fields [32]byte
	_ = w.WriteHead(http.StatusOK, int64(len(body)), link.AppendField(fields[:0], "Content-Type", "text/plain"))
	_, _ = w.Write(body)
}
