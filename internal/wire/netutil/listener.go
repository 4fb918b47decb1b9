package netutil

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"
)

// Accept takes a connection from l. After an error that will pass, most likely
// for want of file descriptors or of memory, it warns and tries again: after 5 ms at first, 1 s
// at last.
func Accept(l net.Listener, log *slog.Logger) (net.Conn, error) {
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		conn, err := l.Accept()
		temporary, ok := errors.AsType[interface {
			error
			Temporary() bool
		}](err)
		wanting := errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM) // of which Go does not say that they pass
		if !wanting && (!ok || !temporary.Temporary()) {
			return conn, err
		}
		log.Warn("cannot accept a connection, trying again", "error", err, "in", pause)
		time.Sleep(pause)
	}
}

// Listener is a net.Listener that gets its connections from Put. Make one with
// [NewListener].
type Listener struct {
	Closed func() error // is called by Close, which returns its error; nil for nothing

	addr   net.Addr
	offers chan offer
	once   sync.Once
	closed chan struct{}
	err    error // of Accept; readable once closed is closed
}

type offer struct {
	conn net.Conn
	take func() bool
}

// NewListener returns a listener whose Addr is addr.
func NewListener(addr net.Addr) *Listener {
	return &Listener{addr: addr, offers: make(chan offer), closed: make(chan struct{})}
}

// Put waits until conn is accepted and reports whether it was. It was not if the listener is closed
// before or gone is closed. take is called last; if it returns false, Accept does not return the
// connection. gone and take may be nil.
func (l *Listener) Put(conn net.Conn, gone <-chan struct{}, take func() bool) bool {
	select {
	case l.offers <- offer{conn, take}:
		return true
	case <-gone:
	case <-l.closed:
	}
	return false
}

// Accept implements [net.Listener].
func (l *Listener) Accept() (net.Conn, error) {
	for {
		select {
		case o := <-l.offers:
			if o.take == nil || o.take() {
				return o.conn, nil
			}
		case <-l.closed:
			return nil, l.err
		}
	}
}

// Close implements [net.Listener].
func (l *Listener) Close() error {
	l.Fail(net.ErrClosed)
	if l.Closed != nil {
		return l.Closed()
	}
	return nil
}

// Fail closes the listener; Accept returns err from then on.
func (l *Listener) Fail(err error) {
	l.once.Do(func() {
		l.err = err
		close(l.closed)
	})
}

// Addr implements [net.Listener].
func (l *Listener) Addr() net.Addr { return l.addr }
