package link

import (
	"cmp"
	"container/list"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/keyway-go/keyway/internal/wake"
	"github.com/keyway-go/keyway/internal/wire/netutil"
	"github.com/keyway-go/keyway/internal/wire/sock"
)

// SplitConfig configures Split. The zero value works.
type SplitConfig struct {
	Timeout time.Duration // for the first bytes, and for TLS, to come in; 0 means 10 s
	TLS     *tls.Config   // nil for none. With it connections without TLS are refused, without it those with it
	Plain   bool          // with TLS, connections without it are taken too
	Pending int           // connections that may wait at once, for that or to be accepted; 0 means 4096. Another one closes the one that has waited longest, once that has for 1 s
	Logger  *slog.Logger  // default: discard
}

// Split accepts connections from ln and distinguishes links by the first byte, or under TLS by the
// negotiated protocol (see ALPN). Both listeners have ln's address. When one is closed, the
// connections meant for it are closed; when both are, ln is. A listener without a caller of Accept
// does not block the other one. TLS connections, by SplitConfig.TLS or by ln, are handed on as a
// *tls.Conn, so that net/http recognizes them.
func Split(ln net.Listener, cfg SplitConfig) (links, others *netutil.Listener) {
	cfg.Timeout = cmp.Or(cfg.Timeout, 10*time.Second)
	cfg.Pending = cmp.Or(cfg.Pending, 4096)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	s := &splitter{ln: ln, cfg: cfg, fewer: make(chan struct{}, 1)}
	s.links, s.others = s.part(), s.part()
	go s.accept()
	return s.links, s.others
}

// splitter accepts connections and hands each to one of two listeners, its parts, once its first
// bytes show its protocol. A connection stands in waiting until Accept of a part returns it.
type splitter struct {
	ln    net.Listener
	cfg   SplitConfig
	fewer chan struct{} // receives when one of waiting has gone

	links, others *netutil.Listener

	mu      sync.Mutex // guards what follows
	waiting list.List  // of *newcomer, the one that has waited longest first
	open    int        // parts that are not closed
}

// newcomer is a connection that has not been accepted from a part.
type newcomer struct {
	nc    net.Conn
	since time.Time
	gone  chan struct{} // closed when it has been given up
	at    *list.Element // in waiting
}

func (s *splitter) part() *netutil.Listener {
	s.open++
	l := netutil.NewListener(s.ln.Addr())
	l.Closed = sync.OnceValue(s.release)
	return l
}

func (s *splitter) accept() {
	for {
		nc, err := netutil.Accept(s.ln, s.cfg.Logger)
		if err != nil {
			s.links.Fail(err)
			s.others.Fail(err)
			return
		}
		s.makeRoom()
		go s.sort(s.watch(nc))
	}
}

// patience is how long a connection may wait even if others want its place.
const patience = time.Second

// makeRoom waits until one more connection may wait.
func (s *splitter) makeRoom() {
	for {
		s.mu.Lock()
		if s.waiting.Len() < s.cfg.Pending {
			s.mu.Unlock()
			return
		}
		oldest := s.waiting.Front().Value.(*newcomer)
		left := patience - time.Since(oldest.since)
		if left <= 0 {
			s.giveUpLocked(oldest)
		}
		s.mu.Unlock()
		if left <= 0 {
			s.cfg.Logger.Warn("link: too many connections wait; the one that has waited longest was closed", "bound", s.cfg.Pending)
			return
		}
		wake.Sleep(left, s.fewer)
	}
}

// watch begins the wait of a connection.
func (s *splitter) watch(nc net.Conn) *newcomer {
	w := &newcomer{nc: nc, since: time.Now(), gone: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	w.at = s.waiting.PushBack(w)
	if s.open == 0 {
		s.giveUpLocked(w)
	}
	return w
}

func (s *splitter) giveUpLocked(w *newcomer) {
	s.removeLocked(w)
	close(w.gone)
	netutil.CloseNow(w.nc)
}

func (s *splitter) removeLocked(w *newcomer) {
	s.waiting.Remove(w.at)
	wake.Up(s.fewer)
}

// endWait ends the wait of a connection, and reports whether it has not been given
// up.
func (s *splitter) endWait(w *newcomer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-w.gone:
		return false
	default:
		s.removeLocked(w)
		return true
	}
}

// sort classifies a connection and hands it on.
func (s *splitter) sort(w *newcomer) {
	conn, p := s.classify(w.nc)
	if p != nil && p.Put(conn, w.gone, func() bool { return s.endWait(w) }) {
		return
	}
	if s.endWait(w) {
		netutil.CloseNow(w.nc)
	}
}

// classify returns the part that a connection is for, nil if nothing came in or it
// was refused, and the connection to be handed to it.
func (s *splitter) classify(nc net.Conn) (net.Conn, *netutil.Listener) {
	nc.SetDeadline(time.Now().Add(s.cfg.Timeout))
	defer nc.SetDeadline(time.Time{})
	if t, ok := nc.(*tls.Conn); ok {
		return s.shake(t)
	}
	first := make([]byte, 1<<10)
	n, err := nc.Read(first)
	if n == 0 || err != nil {
		return nil, nil
	}
	conn := &netutil.ReadAhead{Conn: nc, Ahead: first[:n]}
	secure, begins := s.cfg.TLS != nil && !s.cfg.Plain, first[0]
	switch {
	case s.cfg.TLS != nil && begins == tlsHandshake:
		return s.shake(tls.Server(sock.BelowTLS(nc, first[:n]), s.cfg.TLS))
	case secure && begins == preface[0]:
		return s.refuse(conn, wantsTLS, errTLSHere)
	case secure:
		return s.refuse(conn, notTaken+"this port takes TLS only\n", nil)
	case begins == tlsHandshake:
		return s.refuse(conn, notTaken+"this port takes no TLS\n", errTLSThere)
	case begins == preface[0]:
		return conn, s.links
	}
	return conn, s.others
}

const notTaken = "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"

// shake returns the part that was negotiated for a connection under TLS.
func (s *splitter) shake(t *tls.Conn) (net.Conn, *netutil.Listener) {
	if err := t.Handshake(); err != nil {
		s.cfg.Logger.Warn("link: a handshake of TLS failed", "peer", t.RemoteAddr(), "error", explainTLS(err))
		linger(netutil.Bare(t))
		return nil, nil
	}
	if t.ConnectionState().NegotiatedProtocol == ALPN {
		return t, s.links
	}
	return t, s.others
}

// refuse answers a connection that speaks TLS where it should not, or does not where
// it should. The difference, if that is one between members, is logged.
func (s *splitter) refuse(conn net.Conn, answer string, difference error) (net.Conn, *netutil.Listener) {
	if difference != nil {
		s.cfg.Logger.Warn("link: a connection was refused", "peer", conn.RemoteAddr(), "error", difference)
	}
	if _, err := io.WriteString(conn, answer); err == nil {
		linger(conn)
	}
	return nil, nil
}

// linger reads until the peer has closed: dropping unread bytes would also lose the bytes sent to
// it.
func linger(conn net.Conn) {
	if netutil.CloseWrite(conn) == nil {
		_, _ = io.CopyN(io.Discard, conn, 64<<10)
	}
}

// release counts one closed part, and ends everything with the last.
func (s *splitter) release() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open--; s.open > 0 {
		return nil
	}
	for s.waiting.Len() > 0 {
		s.giveUpLocked(s.waiting.Front().Value.(*newcomer))
	}
	return s.ln.Close()
}
