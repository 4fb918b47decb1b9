package hop1

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/internal/wire/netutil"
)

// sentWait is how long an answer that is complete waits for the end of writing
// a request whose body has ended, before the connection is closed.
const sentWait = 50 * time.Millisecond

// RoundTrip implements [http.RoundTripper] for what an Exchange does not do:
// bodies that are streamed, and changes of protocol that the field Upgrade asks
// for: then the answer's Body is an [io.ReadWriteCloser] with CloseWrite. The
// URL's host does not matter. A body that is offered with Expect: 100-continue is
// not read unless the server asks for it. A connection that has to be given up is
// given up before RoundTrip returns an error, or by the Body's Close, which waits
// for that. Interim answers go to the context's [httptrace.ClientTrace]. The error
// wraps ErrNotStarted if the server has provably not begun with the request, of whose
// body some may have been read.
func (p *Pool) RoundTrip(req *http.Request) (*http.Response, error) {
	for tries := 1; ; tries++ {
		res, err := p.roundTrip(req)
		if req.Body != nil && req.Body != http.NoBody || !errors.Is(err, errStale) || tries == freshTries {
			return res, err
		}
	}
}

func (p *Pool) roundTrip(req *http.Request) (*http.Response, error) {
	c, err := p.live(req.Context())
	if err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	t := &trip{pool: p, req: req.WithContext(req.Context()), conn: c, asked: make(chan struct{}), sent: make(chan error, 1), ended: make(chan struct{})}
	c.before = c.wrote
	t.ask = sync.OnceFunc(func() { close(t.asked) })
	t.limit = io.LimitedReader{R: (*tripReader)(t), N: maxHead}
	t.in = bufio.NewReader(&t.limit)
	t.stop = context.AfterFunc(req.Context(), func() { t.interrupt(context.Cause(req.Context())) })
	if req.Body == nil || req.Body == http.NoBody {
		t.write()
	} else {
		t.prepareBody()
		go t.write()
	}
	res, err := t.readHead()
	if err == nil {
		return res, nil
	}
	kind := t.kindOf(err)
	t.giveUp()
	return nil, t.cause(fmt.Errorf("%w: %w", kind, err))
}

// errNoAnswer: the request may have run.
var errNoAnswer = errors.New("hop1: no answer")

// kindOf returns what it means that reading the answer has failed.
func (t *trip) kindOf(err error) error {
	if err == io.ErrUnexpectedEOF { // as net/http calls it
		err = io.EOF
	}
	if t.limit.N < maxHead || !ended(err) {
		return errNoAnswer
	}
	written := false
	select {
	case failed := <-t.sent:
		written, err = true, errors.Join(err, failed)
	case <-time.After(refusalWait): // it waits for the body
	}
	hasBody := t.req.Body != nil && t.req.Body != http.NoBody
	switch {
	case written && t.conn.wrote == t.conn.before, t.conn.closedBefore(err):
		return fmt.Errorf("%w: %w", ErrNotStarted, errStale)
	case !hasBody && t.pool.leftUnread(t.req.Context(), t.conn, err):
		return ErrNotStarted
	}
	return errNoAnswer
}

// live returns a connection that had not ended when it was looked at.
func (p *Pool) live(ctx context.Context) (*conn, error) {
	for {
		c, err := p.get(ctx)
		if err != nil || !c.stale() {
			return c, err
		}
		p.drop(c)
	}
}

// trip is one RoundTrip and its answer. Its channels mark the steps: the body may be read, the
// request is written, the connection is done with. A request with a body is
// written on a goroutine of its own. mu guards the interruption, which makes writing and reading
// fail.
type trip struct {
	pool  *Pool
	req   *http.Request
	conn  *conn
	stop  func() bool   // ends the watch of the request's context
	sent  chan error    // receives once the request is written
	ask   func()        // closes asked
	asked chan struct{} // closed when the body may be read
	ended chan struct{} // closed when the connection is done with

	bodyRead atomic.Bool // the request's body has come to its end
	limit    io.LimitedReader
	in       *bufio.Reader
	close    bool // the answer says that no other request may follow

	reading sync.Mutex // held while the connection is read

	mu   sync.Mutex // guards what follows
	over bool       // nobody may interrupt or read the connection any more
	err  error      // why it was interrupted
}

// prepareBody wraps the request's body so that the trip sees its reads. A body that is only offered
// (Expect: 100-continue) gets its framing here, since net/http would read from it to choose one.
func (t *trip) prepareBody() {
	t.req.Body = &tripBody{t.req.Body, t}
	switch {
	case !strings.EqualFold(t.req.Header.Get("Expect"), "100-continue"):
		t.ask()
	case t.req.ContentLength <= 0:
		t.req.TransferEncoding = []string{"chunked"}
	}
}

func (t *trip) write() {
	out := tripWriter{conn: t.conn}
	err := t.req.Write(&out)
	switch {
	case out.err != nil:
		err = out.err // as it is, which net/http does not wrap
	case err != nil:
		t.interrupt(fmt.Errorf("%w: %w", ErrBrokeOff, err))
	}
	t.sent <- err
}

// tripWriter writes to the connection and keeps its error.
type tripWriter struct {
	conn *conn
	err  error
}

func (w *tripWriter) Write(b []byte) (n int, err error) {
	n, w.err = w.conn.nc.Write(b)
	w.conn.wrote += uint64(n)
	return n, w.err
}

// tripBody is the request's body.
type tripBody struct {
	io.ReadCloser
	t *trip
}

func (b *tripBody) Read(p []byte) (int, error) {
	select {
	case <-b.t.asked:
	case <-b.t.ended:
	}
	select {
	case <-b.t.ended:
		return 0, net.ErrClosed
	default:
	}
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.t.bodyRead.Store(true)
	}
	return n, err
}

// readHead reads the answer's head, after those of interim ones.
func (t *trip) readHead() (*http.Response, error) {
	trace := httptrace.ContextClientTrace(t.req.Context())
	for {
		res, err := http.ReadResponse(t.in, t.req)
		switch {
		case err != nil && t.limit.N <= 0:
			return nil, errTooLarge
		case err != nil:
			return nil, err
		case res.StatusCode < 100:
			return nil, fmt.Errorf("%w: its status is %d", errMalformed, res.StatusCode)
		case res.StatusCode == http.StatusSwitchingProtocols && t.req.Header.Get("Upgrade") == "":
			return nil, fmt.Errorf("%w: it changes protocols", errMalformed)
		case res.StatusCode >= 200 || res.StatusCode == http.StatusSwitchingProtocols:
			t.limit.N = 1<<63 - 1
			t.beginAnswer(res)
			return res, nil
		case res.StatusCode == http.StatusContinue:
			if trace != nil && trace.Got100Continue != nil {
				trace.Got100Continue()
			}
			t.ask()
		case trace != nil && trace.Got1xxResponse != nil:
			if err := trace.Got1xxResponse(res.StatusCode, textproto.MIMEHeader(res.Header)); err != nil {
				return nil, err
			}
		}
	}
}

// beginAnswer begins the answer whose head has been read.
func (t *trip) beginAnswer(res *http.Response) {
	t.close = res.Close
	switch {
	case res.StatusCode == http.StatusSwitchingProtocols:
		res.Body = tunnel{t}
	case res.Body == http.NoBody:
		t.complete()
	default:
		res.Body = &tripAnswer{res.Body, t}
	}
}

// tripReader reads from the connection until its use is over.
type tripReader trip

func (t *tripReader) Read(p []byte) (int, error) {
	t.reading.Lock()
	defer t.reading.Unlock()
	t.mu.Lock()
	over := t.over
	t.mu.Unlock()
	if over {
		return 0, net.ErrClosed
	}
	return t.conn.readOn(p)
}

// interrupt makes everything that uses the connection fail.
func (t *trip) interrupt(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	if t.err == nil {
		t.err = err
	}
	_ = t.conn.nc.SetDeadline(netutil.Past)
}

// cause returns why the connection was interrupted, and otherwise err.
func (t *trip) cause(err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return t.err
	}
	return err
}

// finish reports whether the caller must end the connection's use.
func (t *trip) finish() (first, disturbed bool) {
	t.stop()
	t.mu.Lock()
	defer t.mu.Unlock()
	first, t.over = !t.over, true
	return first, t.err != nil
}

// complete ends the use of the connection of an answer that is complete.
func (t *trip) complete() {
	first, disturbed := t.finish()
	if !first {
		return
	}
	defer close(t.ended)
	if disturbed || t.close || t.in.Buffered() > 0 || !t.wasSent() {
		t.pool.drop(t.conn)
		return
	}
	t.pool.put(t.conn)
}

// wasSent reports whether all of the request was written.
func (t *trip) wasSent() bool {
	var late <-chan time.Time
	if t.bodyRead.Load() {
		late = time.After(sentWait)
	} else if len(t.sent) == 0 {
		return false
	}
	select {
	case err := <-t.sent:
		return err == nil
	case <-late:
		return false
	}
}

// giveUp ends the use of the connection if the answer is not complete, and
// waits until it is done with.
func (t *trip) giveUp() {
	if first, _ := t.finish(); !first {
		<-t.ended
		return
	}
	defer close(t.ended)
	_ = t.conn.nc.SetDeadline(netutil.Past)
	t.reading.Lock() // whoever read the connection has returned
	defer t.reading.Unlock()
	t.pool.giveUp(t.req.Context(), t.conn)
}

// tripAnswer is the answer's body.
type tripAnswer struct {
	body io.Reader
	t    *trip
}

func (a *tripAnswer) Read(p []byte) (int, error) {
	n, err := a.body.Read(p)
	switch {
	case err == io.EOF:
		a.t.complete()
	case err != nil:
		err = a.t.cause(err)
	}
	return n, err
}

func (a *tripAnswer) Close() error {
	a.t.giveUp()
	return nil
}

// tunnel is the connection after a change of protocol.
type tunnel struct{ t *trip }

func (u tunnel) Read(p []byte) (int, error) {
	n, err := u.t.in.Read(p)
	if err != nil && err != io.EOF {
		err = u.t.cause(err)
	}
	return n, err
}

func (u tunnel) Write(p []byte) (int, error) { return u.t.conn.nc.Write(p) }

// CloseWrite ends what is sent to the server.
func (u tunnel) CloseWrite() error { return netutil.CloseWrite(u.t.conn.nc) }

func (u tunnel) Close() error {
	u.t.giveUp()
	return nil
}
