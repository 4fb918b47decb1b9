package link

import (
	"crypto/tls"
	"io"
	"net"
	"sync"
	"time"
)

// SplitConfig configures Split. The zero value works.
type SplitConfig struct {
	Timeout time.Duration // for the first bytes, and for TLS, to come in; 0 means 10 s
	Pending int           // connections that may be waiting for that at once; more are closed; 0 means 4096
}

// Split takes connections from ln and tells links from anything else by the
// first byte, or under TLS by the protocol that was negotiated (see ALPN).
// Both listeners have ln's address; when one is closed, the connections meant
// for it are closed; when both are, ln is. Connections under TLS are handed
// on as the *tls.Conn that ln yields, so that net/http knows them.
func Split(ln net.Listener, cfg SplitConfig) (links, others net.Listener) {
	if cfg.Timeout <= 0 {
		cfg.Timeout = 10 * time.Second
	}
	if cfg.Pending <= 0 {
		cfg.Pending = 4096
	}
	s := &splitter{
		ln:      ln,
		timeout: cfg.Timeout,
		pending: make(chan struct{}, cfg.Pending),
		waiting: make(map[net.Conn]struct{}),
	}
	s.links, s.others = newPart(s), newPart(s)
	go s.accept()
	return s.links, s.others
}

type splitter struct {
	ln      net.Listener
	timeout time.Duration
	pending chan struct{} // a token for each connection in waiting

	links, others *part

	mu      sync.Mutex
	waiting map[net.Conn]struct{} // whose first bytes have not come in
	open    int                   // parts that are not closed
}

// part is one of the two listeners.
type part struct {
	s      *splitter
	conns  chan net.Conn
	errs   chan error // errors of ln's Accept that are not the end
	once   sync.Once
	closed chan struct{}
}

func newPart(s *splitter) *part {
	s.open++
	return &part{s: s, conns: make(chan net.Conn), errs: make(chan error), closed: make(chan struct{})}
}

// accept runs until ln is closed.
func (s *splitter) accept() {
	for {
		nc, err := s.ln.Accept()
		if err != nil {
			if !s.report(err) {
				return
			}
			continue
		}
		select {
		case s.pending <- struct{}{}:
			s.watch(nc)
			go s.sort(nc)
		default:
			nc.Close()
		}
	}
}

// report hands an error of ln to whichever listeners are open, which decide
// whether to go on. It reports false when both are closed.
func (s *splitter) report(err error) bool {
	for _, p := range []*part{s.links, s.others} {
		select {
		case p.errs <- err:
		case <-p.closed:
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open > 0
}

func (s *splitter) watch(nc net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[nc] = struct{}{}
	if s.open == 0 {
		nc.Close()
	}
}

// sort finds out what nc is and hands it on.
func (s *splitter) sort(nc net.Conn) {
	conn, p := s.classify(nc)
	s.mu.Lock()
	delete(s.waiting, nc)
	s.mu.Unlock()
	<-s.pending
	if p == nil {
		nc.Close()
		return
	}
	select {
	case p.conns <- conn:
	case <-p.closed:
		nc.Close()
	}
}

// classify returns whose nc is, and what to hand on; a nil part if nothing
// came in.
func (s *splitter) classify(nc net.Conn) (net.Conn, *part) {
	nc.SetDeadline(time.Now().Add(s.timeout))
	defer nc.SetDeadline(time.Time{})
	if t, ok := nc.(*tls.Conn); ok {
		if t.Handshake() != nil {
			return nil, nil
		}
		if t.ConnectionState().NegotiatedProtocol == ALPN {
			return t, s.links
		}
		return t, s.others
	}
	first := make([]byte, 1<<10)
	n, err := nc.Read(first)
	if n == 0 || err != nil {
		return nil, nil
	}
	conn := &readAhead{Conn: nc, stream: nc, rest: first[:n]}
	if first[0] == preface[0] {
		return conn, s.links
	}
	return conn, s.others
}

// Accept implements net.Listener.
func (p *part) Accept() (net.Conn, error) {
	select {
	case <-p.closed:
		return nil, net.ErrClosed
	default:
	}
	select {
	case nc := <-p.conns:
		return nc, nil
	case err := <-p.errs:
		return nil, err
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Addr implements net.Listener.
func (p *part) Addr() net.Addr { return p.s.ln.Addr() }

// Close implements net.Listener.
func (p *part) Close() error {
	var err error
	p.once.Do(func() {
		close(p.closed)
		err = p.s.release()
	})
	return err
}

// release notes that a part was closed, and ends everything with the last.
func (s *splitter) release() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open--; s.open > 0 {
		return nil
	}
	for nc := range s.waiting {
		nc.Close()
	}
	return s.ln.Close()
}

// readAhead is a connection whose first bytes have been read already.
type readAhead struct {
	net.Conn
	stream io.ReadWriter // of Conn
	rest   []byte
}

// Read implements net.Conn.
func (c *readAhead) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		return c.stream.Read(p)
	}
	n := copy(p, c.rest)
	if c.rest = c.rest[n:]; len(c.rest) == 0 {
		c.rest = nil
	}
	return n, nil
}

// Write implements net.Conn.
func (c *readAhead) Write(p []byte) (int, error) { return c.stream.Write(p) }

// CloseWrite lets net/http end a connection in an orderly way.
func (c *readAhead) CloseWrite() error {
	if h, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return nil
}
