package netutil_test

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/internal/wire/netutil"
)

// failing is a listener that fails with each of the errors, and then works.
type failing struct {
	net.Listener
	errs []error
	conn net.Conn
}

func (l *failing) Accept() (net.Conn, error) {
	if len(l.errs) == 0 {
		return l.conn, nil
	}
	err := l.errs[0]
	l.errs = l.errs[1:]
	return nil, err
}

func TestAcceptTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		start := time.Now()
		l := &failing{errs: []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM}, conn: near}
		if conn, err := netutil.Accept(l, slog.New(slog.DiscardHandler)); conn != near || err != nil || time.Since(start) != (5+10+20+40)*time.Millisecond {
			t.Errorf("%v, %v after %v", conn, err, time.Since(start))
		}
		for _, lasting := range []error{net.ErrClosed, syscall.EINVAL, io.EOF} {
			l.errs = []error{lasting}
			if _, err := netutil.Accept(l, nil); err != lasting {
				t.Errorf("%v, want %v", err, lasting)
			}
		}
	})
}

func TestListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := netutil.NewListener(&net.TCPAddr{Port: 1})
		near, far := net.Pipe()
		defer near.Close()
		put := make(chan bool, 1)
		go func() {
			l.Put(far, nil, func() bool { return false })
			put <- l.Put(near, nil, func() bool { return true })
		}()
		if conn, err := l.Accept(); conn != near || err != nil || !<-put || l.Addr().String() != ":1" {
			t.Errorf("%v, %v, %v", conn, err, l.Addr())
		}
		gone := make(chan struct{})
		go func() { put <- l.Put(near, gone, nil) }()
		synctest.Wait()
		close(gone)
		if <-put {
			t.Error("one that has gone is accepted")
		}
		go func() { put <- l.Put(near, nil, nil) }()
		synctest.Wait()
		l.Fail(io.ErrNoProgress)
		l.Close()
		if <-put {
			t.Error("a closed listener takes connections")
		}
		if _, err := l.Accept(); !errors.Is(err, io.ErrNoProgress) {
			t.Error(err)
		}
	})
}

func TestReadAhead(t *testing.T) {
	near, far := net.Pipe()
	go func() {
		far.Write([]byte("world"))
		far.Close()
	}()
	c := &netutil.ReadAhead{Conn: near, Ahead: []byte("hello, ")}
	if b, err := io.ReadAll(c); string(b) != "hello, world" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if err := c.CloseWrite(); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}

// Goroutines are used again, no more of them are kept than is said, and none
// when the workers are closed.
func TestWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int32
		release := make(chan struct{})
		w := netutil.Workers[int]{Keep: 2, Run: func(int) {
			most.Store(max(most.Load(), running.Add(1)))
			<-release
			running.Add(-1)
		}}
		for range 3 {
			for i := range 5 {
				w.Go(i)
			}
			synctest.Wait()
			if running.Load() != 5 {
				t.Errorf("%d run at once, want 5", running.Load())
			}
			for range 5 {
				release <- struct{}{}
			}
			synctest.Wait()
		}
		w.Go(0)
		synctest.Wait()
		w.Close()
		w.Close()
		close(release)
		w.Wait()
		if most.Load() != 5 || running.Load() != 0 {
			t.Errorf("%d at most, %d at last", most.Load(), running.Load())
		}
	})
}
