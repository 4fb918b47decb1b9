package hop1

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
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

// RoundTrip implements [http.RoundTripper] with an Exchange. It also streams bodies, and changes
// the protocol if the field Upgrade asks for that. The answer's Body is then an
// [io.ReadWriteCloser] with CloseWrite. The URL's host does not matter. A body that is offered with Expect: 100-continue is
// not read unless the server asks for it. A connection that has to be given up is
// given up before RoundTrip returns an error, or by the Body's Close, which waits
// for that. Interim answers go to the context's [httptrace.ClientTrace]. The error
// wraps ErrNotStarted if the server has provably not begun with the request, of whose
// body some may have been read.
func (p *Pool) RoundTrip(req *http.Request) (*http.Response, error) {
	x := p.Begin()
	x.Method, x.request = req.Method, req
	a := &answer{x: x, end: func(error) {}, turn: make(chan struct{}, 1), closed: make(chan struct{})}
	var err error
	if req.Body == nil || req.Body == http.NoBody {
		err = x.sendWhole()
	} else {
		var ctx context.Context
		ctx, a.end = context.WithCancelCause(req.Context())
		err = x.sendStream(ctx, a.end)
	}
	if err == nil {
		err = x.passInterims()
	}
	if err != nil {
		a.Close()
		return nil, err
	}
	a.response = x.response
	switch n, last := x.Buffered(); {
	case x.body == bodyUpgraded:
		a.response.Body = tunnel{a, x.conn.nc}
	case last && n == 0 && x.body == bodyLength:
		a.response.Body = http.NoBody
		a.Close()
	default:
		a.response.Body = a
	}
	return a.response, nil
}

// sendWhole sends a request without a body.
func (x *Exchange) sendWhole() error {
	message := bytes.NewBuffer(x.Message)
	if err := x.request.Write(message); err != nil {
		return fmt.Errorf("%w: %w", ErrBrokeOff, err)
	}
	x.Message = message.Bytes()
	return x.Do(x.request.Context())
}

// sendStream sends a request with a body, whose reading ends with ctx.
func (x *Exchange) sendStream(ctx context.Context, giveUp context.CancelCauseFunc) error {
	c, err := x.pool.live(ctx)
	if err != nil {
		x.request.Body.Close()
		return err
	}
	x.watch(ctx)
	x.use(c)
	c.before = c.wrote
	u := &upload{ReadCloser: x.request.Body, ctx: ctx, conn: c, asked: make(chan struct{}), sent: make(chan error, 1)}
	u.ask = sync.OnceFunc(func() { close(u.asked) })
	x.upload = u
	go u.write(x.request, giveUp)
	if err = x.Continue(); err == nil || x.heads > 0 || ctx.Err() != nil || !ended(err) {
		return err
	}
	written := false
	select {
	case failed := <-u.sent:
		written, err = true, errors.Join(err, failed)
	case <-time.After(refusalWait): // it waits for the body
	}
	if written && c.wrote == c.before || c.closedBefore(err) {
		return fmt.Errorf("%w: %w", ErrNotStarted, err)
	}
	return err
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

// passInterims passes interim answers on, until the head of another one has been read.
func (x *Exchange) passInterims() (err error) {
	trace := httptrace.ContextClientTrace(x.ctx)
	for err == nil && x.Status < 200 && x.Status != http.StatusSwitchingProtocols {
		switch {
		case x.Status == http.StatusContinue:
			if trace != nil && trace.Got100Continue != nil {
				trace.Got100Continue()
			}
			if x.upload != nil {
				x.upload.ask()
			}
		case trace != nil && trace.Got1xxResponse != nil:
			err = trace.Got1xxResponse(x.Status, textproto.MIMEHeader(x.response.Header))
		}
		if err == nil {
			err = x.Continue()
		}
	}
	return err
}

// upload is the body of a request, which is written on a goroutine of its own.
type upload struct {
	io.ReadCloser
	ctx   context.Context // ends with the exchange
	conn  *conn
	ask   func()        // closes asked
	asked chan struct{} // closed when the body may be read
	ended atomic.Bool   // the body has come to its end
	sent  chan error    // receives once the request is written
}

// write writes the request. It gives the exchange up if the body cannot be read. A body that is
// only offered (Expect: 100-continue) gets its framing here, since net/http would read from it to
// choose one.
func (u *upload) write(req *http.Request, giveUp context.CancelCauseFunc) {
	req = req.WithContext(u.ctx)
	req.Body = u
	switch {
	case !strings.EqualFold(req.Header.Get("Expect"), "100-continue"):
		u.ask()
	case req.ContentLength <= 0:
		req.TransferEncoding = []string{"chunked"}
	}
	out := uploadWriter{conn: u.conn}
	err := req.Write(&out)
	switch {
	case out.err != nil:
		err = out.err // as it is, which net/http does not wrap
	case err != nil:
		giveUp(fmt.Errorf("%w: %w", ErrBrokeOff, err))
	}
	u.sent <- err
}

func (u *upload) Read(p []byte) (int, error) {
	select {
	case <-u.asked:
	case <-u.ctx.Done():
	}
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	n, err := u.ReadCloser.Read(p)
	if err == io.EOF {
		u.ended.Store(true)
	}
	return n, err
}

// wasSent reports whether all of the request was written.
func (u *upload) wasSent() bool {
	if u == nil {
		return true
	}
	var late <-chan time.Time
	if u.ended.Load() {
		late = time.After(sentWait)
	} else if len(u.sent) == 0 {
		return false
	}
	select {
	case err := <-u.sent:
		return err == nil
	case <-late:
		return false
	}
}

// uploadWriter writes to the connection and keeps its error.
type uploadWriter struct {
	conn *conn
	err  error
}

func (w *uploadWriter) Write(b []byte) (n int, err error) {
	n, w.err = w.conn.nc.Write(b)
	w.conn.wrote += uint64(n)
	return n, w.err
}

// answer is the body of an answer. Close may be called while it is read, and more than once. It is
// reading or idle until Close takes its turn for good.
type answer struct {
	x        *Exchange
	response *http.Response
	end      func(error)   // ends the reading of the request's body
	turn     chan struct{} // holds an element while x is used
	closing  atomic.Bool
	closed   chan struct{} // closed when the connection is done with
}

func (a *answer) Read(p []byte) (int, error) {
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-a.closed:
		return 0, net.ErrClosed
	}
	n, err := a.x.Read(p)
	if list := a.x.Trailer(); len(list) > 0 {
		trailer := make(http.Header)
		for _, f := range list {
			trailer.Add(string(f.Name), string(f.Value))
		}
		if a.response.Trailer == nil {
			a.response.Trailer = make(http.Header)
		}
		maps.Copy(a.response.Trailer, trailer)
	}
	return n, err
}

func (a *answer) Close() error {
	if a.closing.Swap(true) {
		<-a.closed
		return nil
	}
	a.x.Interrupt()
	a.turn <- struct{}{} // whoever reads has returned
	a.x.Close()
	a.end(net.ErrClosed)
	close(a.closed)
	return nil
}

// tunnel is the connection after a change of protocol.
type tunnel struct {
	*answer
	conn net.Conn
}

func (t tunnel) Write(p []byte) (int, error) { return t.conn.Write(p) }

// CloseWrite ends what is sent to the server.
func (t tunnel) CloseWrite() error { return netutil.CloseWrite(t.conn) }
