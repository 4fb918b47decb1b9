package answers

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"net/http"

	"github.com/keyway-go/keyway/internal/wire/grammar"
	"github.com/keyway-go/keyway/internal/wire/netutil"
)

// Plain takes a handler's answer to a request that did not come over the link, at the speed of the
// handler. Its methods wait for the client only when there is no more room. net/http's writer,
// which waits for the client, is used by finish, when the key is free, or by the goroutine of a
// backlog.
//
// The handler's goroutine owns a Plain. The answer is small until its body exceeds the buffer or
// the handler flushes; from then on it has a backlog.
type Plain struct {
	rw     http.ResponseWriter
	ctx    context.Context // of the execution
	room   *Room
	client uint64      // as in [asking]
	header http.Header // the handler's
	last   func(http.Header)

	status   int           // 0 until it is known
	head     http.Header   // as it was then
	declared int64         // length of the body, -1 if it is not known
	written  int64         // bytes of the body so far
	small    []byte        // the body until there is a backlog
	over     *backlog      // gets the body; nil until small is full, or the handler flushes
	interim  chan struct{} // closed when the interim answers so far are sent; nil for none
	hijacked bool

	failed error // why no more can be sent
	whole  bool  // the handler has returned
}

// smallAnswer is how much of a body is kept before it goes to a backlog.
const smallAnswer = 16 << 10

// NewPlain returns a Plain for the answer to a client's request, whose execution has the context ctx. last adds to the header of an answer that is sent when the
// key is free.
func (k *Room) NewPlain(ctx context.Context, client uint64, rw http.ResponseWriter, last func(http.Header)) *Plain {
	return &Plain{rw: rw, ctx: ctx, room: k, client: client, header: rw.Header().Clone(), declared: -1, last: last}
}

// Header implements [http.ResponseWriter].
func (a *Plain) Header() http.Header { return a.header }

// WriteHeader implements [http.ResponseWriter].
func (a *Plain) WriteHeader(status int) {
	switch {
	case a.status != 0:
	case status >= 100 && status < 200 && status != http.StatusSwitchingProtocols:
		a.sendInterim(status)
	default:
		a.status, a.head = status, a.header.Clone()
		if v := a.head["Content-Length"]; len(v) > 0 {
			if n, ok := grammar.ParseLength(v[0]); ok {
				a.declared = n
			}
		}
	}
}

func (a *Plain) sendInterim(status int) {
	before, done, header := a.interim, make(chan struct{}), a.header.Clone()
	a.interim = done
	go func() {
		defer close(done)
		if before != nil {
			<-before
		}
		clear(a.rw.Header())
		maps.Copy(a.rw.Header(), header)
		a.rw.WriteHeader(status)
	}()
}

// Write implements [io.Writer].
func (a *Plain) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	switch {
	case a.hijacked:
		return 0, http.ErrHijacked
	case a.failed != nil:
		return 0, a.failed
	case len(p) == 0:
		return 0, nil
	case grammar.HasNoBody(a.status):
		return 0, http.ErrBodyNotAllowed
	case a.declared >= 0 && a.written+int64(len(p)) > a.declared:
		return 0, http.ErrContentLength
	}
	a.written += int64(len(p))
	if a.over == nil {
		if a.written <= smallAnswer {
			a.small = append(a.small, p...)
			return len(p), nil
		}
		a.beginSending()
	}
	if a.put(p); a.failed != nil {
		return 0, a.failed
	}
	return len(p), nil
}

func (a *Plain) beginSending() {
	a.over = a.room.backlog(a.client, a.sendHead, a.send)
	a.put(a.small)
	a.small = nil
}

// backlogTurn is how much a backlog has taken, in bytes, when it is ended as soon as
// the client has read that: nothing of an endless answer stays.
const backlogTurn = 64 << 10

// put gives p to the backlog. If that is full it waits, for as long as the execution may continue.
func (a *Plain) put(p []byte) {
	if a.failed == nil && a.over.taken.Load() >= backlogTurn && a.over.Idle() {
		a.turn()
	}
	if a.failed != nil {
		return
	}
	n, err := a.over.Write(p)
	if a.failed = err; err == nil && n < len(p) {
		defer context.AfterFunc(a.ctx, func() { _ = http.NewResponseController(a.rw).SetWriteDeadline(netutil.Past) })()
		if a.turn(); a.failed == nil {
			a.failed = a.send(p[n:])
		}
	}
}

// turn waits until the backlog is sent, and begins another one.
func (a *Plain) turn() {
	a.failed = a.over.End()
	a.over = a.room.backlog(a.client, nil, a.send)
}

func (a *Plain) sendHead() error {
	if a.interim != nil {
		<-a.interim
	}
	clear(a.rw.Header())
	maps.Copy(a.rw.Header(), a.head)
	a.rw.WriteHeader(a.status)
	return a.flush()
}

// send sends a part of the body at the client's speed.
func (a *Plain) send(p []byte) error {
	if _, err := a.rw.Write(p); err != nil {
		return err
	}
	return a.flush()
}

func (a *Plain) flush() error {
	err := http.NewResponseController(a.rw).Flush()
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

// Flush implements [http.Flusher].
func (a *Plain) Flush() { _ = a.FlushError() }

// FlushError is Flush for [http.ResponseController].
func (a *Plain) FlushError() error {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	if a.over == nil && !a.hijacked {
		a.beginSending()
	}
	return a.failed // what is written from now on is sent at once
}

// Hijack implements [http.Hijacker].
func (a *Plain) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if a.interim != nil {
		<-a.interim
	}
	maps.Copy(a.rw.Header(), a.header)
	conn, rw, err := http.NewResponseController(a.rw).Hijack()
	a.hijacked = err == nil
	return conn, rw, err
}

// Unwrap lets [http.ResponseController] reach the server's writer.
func (a *Plain) Unwrap() http.ResponseWriter { return a.rw }

// Returned records that the handler has returned.
func (a *Plain) Returned() { a.whole = true }

// Finish sends what is left of the answer. The key must be free by then. If the
// handler has not returned but panicked, the server breaks the answer off.
func (a *Plain) Finish() {
	began := a.over != nil
	if began {
		a.failed = cmp.Or(a.over.End(), a.failed)
	}
	if a.interim != nil {
		<-a.interim
	}
	switch {
	case a.hijacked || !a.whole:
		return
	case a.failed != nil:
		panic(http.ErrAbortHandler) // the client must not take what it got for the whole
	case !began:
		a.finishSmall()
	}
	maps.Copy(a.rw.Header(), a.header) // with trailers
}

// finishSmall sends an answer whose head and body are still unsent.
func (a *Plain) finishSmall() {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	clear(a.rw.Header())
	maps.Copy(a.rw.Header(), a.head)
	a.last(a.rw.Header())
	a.rw.WriteHeader(a.status)
	if len(a.small) > 0 {
		_, _ = a.rw.Write(a.small) // should it fail, nobody is there
	}
}
