package hop1

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/keyway-go/keyway/internal/wire/grammar"
	"github.com/keyway-go/keyway/internal/wire/http1"
	"github.com/keyway-go/keyway/internal/wire/netutil"
)

// ErrBrokeOff means that the request's body could not be read to its end.
var ErrBrokeOff = errors.New("hop1: the request broke off")

// Errors of answers. The request may have run.
var (
	errMalformed = errors.New("hop1: the answer is malformed")
	errTooLarge  = errors.New("hop1: the answer's head is too large")
)

const (
	bufferSize = 16 << 10
	maxHead    = 1 << 20
)

// Exchange is one request and its answer, for one goroutine. Make it with [Begin], call Do, read
// the answer, and call Close. Only Interrupt may be called from other goroutines: mu guards conn
// and interrupted.
type Exchange struct {
	Method  string // of the request: it says whether the answer has a body
	Message []byte // the request's head and body; Do goes on to use its memory
	Watched bool   // the owner of the context given to Do calls Interrupt after its end

	// The answer, once Do or Continue has returned. Fields are valid until the next call of any
	// method.
	Status        int
	ContentLength int64 // as declared, also where there is no body; -1 if it was not
	Fields        []http1.Field

	pool *Pool
	ctx  context.Context
	stop func() bool // ends the watch of ctx; nil if there is none

	mu          sync.Mutex // guards changes of what follows
	conn        *conn      // nil when the exchange does not use it any more
	interrupted bool

	// For RoundTrip alone; nil without it.
	request  *http.Request
	response *http.Response // its head, as net/http has read it
	upload   *upload        // nil without a body

	buf    []byte
	r, w   int // buf[r:w] was read and not yet taken; of a body, without its framing
	head   http1.ResponseHead
	heads  int // bytes of heads so far
	body   bodyKind
	left   int64 // of a body of known length, not read yet or in buf
	chunks http1.Chunked
	reuse  bool  // another request may follow on conn
	err    error // of the body; io.EOF when all of it is in buf
}

// bodyKind is how an answer's body is delimited.
type bodyKind uint8

const (
	bodyLength   bodyKind = iota // also for no body at all
	bodyChunked                  //
	bodyToEnd                    // ends with the connection
	bodyUpgraded                 // of another protocol: its end leaves the connection in use
)

var exchanges = sync.Pool{New: func() any { return &Exchange{buf: make([]byte, bufferSize)} }}

// Begin returns an exchange with an empty Message to append to.
func (p *Pool) Begin() *Exchange {
	x := exchanges.Get().(*Exchange)
	x.pool, x.Message = p, x.buf[:0]
	return x
}

// Do sends Message and reads the head of the answer; if it is an interim one
// (Status below 200), Continue reads the next. When ctx ends, Do, Continue and
// Next fail with its cause.
func (x *Exchange) Do(ctx context.Context) error {
	x.watch(ctx)
	if cap(x.Message) > cap(x.buf) {
		x.buf = x.Message[:cap(x.Message)]
	}
	for fresh := 0; ; {
		c, err := x.pool.get(ctx)
		if err != nil {
			return err
		}
		x.use(c)
		n, err := c.start(x.Message, x.buf)
		switch {
		case err == nil:
			x.r, x.w = 0, n
			return x.Continue()
		case errors.Is(err, errStale) || c.closedBefore(err):
			if !c.pooled {
				fresh++
			}
		case !x.hasBody() && x.pool.leftUnread(ctx, c, err):
			fresh = freshTries
		default:
			return x.fail(fmt.Errorf("hop1: no answer: %w", err))
		}
		x.release(false)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case fresh == freshTries:
			return fmt.Errorf("%w: %w", ErrNotStarted, err)
		}
	}
}

func (x *Exchange) watch(ctx context.Context) {
	if x.ctx = ctx; !x.Watched && ctx.Done() != nil {
		x.stop = context.AfterFunc(ctx, x.Interrupt)
		if ctx.Err() != nil {
			x.Interrupt() // AfterFunc waits for nothing
		}
	}
}

func (x *Exchange) hasBody() bool {
	_, body, _ := bytes.Cut(x.Message, []byte("\r\n\r\n"))
	return len(body) > 0
}

// Interrupt makes Do, Continue and Next fail. Unlike the other methods it may
// be called by any goroutine, until Close is.
func (x *Exchange) Interrupt() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.interrupted = true
	if x.conn != nil {
		_ = x.conn.nc.SetDeadline(netutil.Past)
	}
}

func (x *Exchange) use(c *conn) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.conn = c
	if x.interrupted {
		_ = c.nc.SetDeadline(netutil.Past)
	}
}

// release ends the use of the connection of an answer that is complete, or of a
// request that was not sent.
func (x *Exchange) release(reuse bool) {
	c, disturbed := x.detach()
	switch {
	case c == nil:
	case reuse && !disturbed && !c.broken && x.upload.wasSent():
		x.pool.put(c)
	default:
		x.pool.drop(c)
	}
}

func (x *Exchange) detach() (c *conn, disturbed bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	c, x.conn = x.conn, nil
	return c, x.interrupted
}

// fail ends the exchange with an error. Close gives the connection up.
func (x *Exchange) fail(err error) error {
	x.err = err
	if x.ctx.Err() != nil {
		x.err = context.Cause(x.ctx)
	}
	return x.err
}

// Continue reads the head of the next answer after an interim one. It begins at buf[r].
func (x *Exchange) Continue() error {
	for {
		if x.request != nil {
			return x.readGeneral()
		}
		switch v := x.head.Parse(x.buf[x.r:x.w]); {
		case v == http1.HandOver:
			return x.readGeneral()
		case v == http1.Done:
			x.r += x.head.Size
			if x.heads += x.head.Size; x.heads > maxHead {
				return x.fail(errTooLarge)
			}
			return x.beginAnswer()
		case x.heads+x.w-x.r > maxHead:
			return x.fail(errTooLarge)
		}
		x.makeRoom()
		n, err := x.conn.Read(x.buf[x.w:])
		if n == 0 && err != nil {
			return x.fail(fmt.Errorf("hop1: no answer: %w", err))
		}
		x.w += n
	}
}

func (x *Exchange) makeRoom() {
	switch {
	case x.w < len(x.buf):
		return
	case x.r > 0:
		x.w = copy(x.buf, x.buf[x.r:x.w])
	default:
		bigger := make([]byte, 2*len(x.buf))
		x.w = copy(bigger, x.buf[x.r:x.w])
		x.buf = bigger
	}
	x.r = 0
}

// beginAnswer begins the answer whose head has been parsed.
func (x *Exchange) beginAnswer() error {
	h := &x.head
	x.Status, x.ContentLength, x.Fields = h.Status, h.ContentLength, h.Fields
	switch {
	case h.Status == http.StatusSwitchingProtocols && (x.request == nil || x.request.Header.Get("Upgrade") == ""):
		return x.fail(fmt.Errorf("%w: it changes protocols", errMalformed))
	case h.Status < 200:
		x.body = bodyUpgraded // if it is not followed by another one
		return nil
	}
	framing := http1.Framing{Method: x.Method, Status: h.Status, Length: h.ContentLength}
	has, unknown := framing.Body()
	x.reuse = !h.Close
	switch {
	case !has:
		x.body, x.left = bodyLength, 0
	case !unknown:
		x.body, x.left = bodyLength, h.ContentLength
	case h.Chunked:
		x.body, x.chunks = bodyChunked, http1.Chunked{}
	default:
		x.body, x.reuse = bodyToEnd, false
	}
	x.took(x.w - x.r)
	return nil
}

// took takes the last n bytes before buf[w], which have just been read, as part of
// the body. When they end it, the connection is released.
func (x *Exchange) took(n int) {
	switch x.body {
	case bodyLength:
		if int64(n) > x.left { // more than there should be
			x.w -= n - int(x.left)
			n, x.reuse = int(x.left), false
		}
		if x.left -= int64(n); x.left > 0 {
			return
		}
	case bodyChunked:
		data, rest, err := x.chunks.Decode(x.buf[x.w-n : x.w])
		x.w += len(data) - n
		switch {
		case err != nil:
			x.fail(err)
			return
		case !x.chunks.Ended():
			return
		}
		x.reuse = x.reuse && len(rest) == 0
	default:
		return
	}
	x.err = io.EOF
	x.release(x.reuse)
}

// readGeneral lets net/http read the head that begins at buf[r]. It is RoundTrip's, or is not
// simple; then no other request follows the answer.
func (x *Exchange) readGeneral() error {
	ahead := bytes.NewReader(x.buf[x.r:x.w])
	limited := &io.LimitedReader{R: io.MultiReader(ahead, x.conn), N: int64(maxHead - x.heads)}
	in := bufio.NewReader(limited)
	res, err := http.ReadResponse(in, cmp.Or(x.request, &http.Request{Method: x.Method}))
	rest, _ := in.Peek(in.Buffered())
	x.heads = maxHead - int(limited.N) - len(rest)
	switch {
	case err == io.ErrUnexpectedEOF && x.heads == 0:
		return x.fail(fmt.Errorf("hop1: no answer: %w", io.EOF))
	case err != nil && limited.N <= 0:
		return x.fail(errTooLarge)
	case err != nil:
		return x.fail(fmt.Errorf("%w: %w", errMalformed, err))
	case res.StatusCode < 100:
		return x.fail(fmt.Errorf("%w: its status is %d", errMalformed, res.StatusCode))
	}
	x.w = copy(x.buf, rest)
	n, _ := ahead.Read(x.buf[x.w:])
	x.r, x.w = 0, x.w+n
	x.head = http1.ResponseHead{Status: res.StatusCode, ContentLength: res.ContentLength, Chunked: len(res.TransferEncoding) > 0, Close: res.Close}
	if x.response = res; x.request == nil {
		x.head.Fields, x.conn.broken = generalFields(res), true
	}
	return x.beginAnswer()
}

// generalFields returns the fields of a head that net/http has parsed, without
// those of the connection and of framing.
func generalFields(r *http.Response) (fields []http1.Field) {
	add := func(name, value string) {
		fields = append(fields, http1.Field{Name: []byte(name), Value: []byte(value)})
	}
	for name := range grammar.Items(r.Header["Connection"]) {
		r.Header.Del(name)
	}
	for name := range r.Trailer {
		add("Trailer", name)
	}
	for name, values := range r.Header {
		if grammar.IsHopField(name) {
			continue
		}
		for _, v := range values {
			add(name, v)
		}
	}
	return fields
}

// Buffered reports how many bytes of the body can be read without waiting, and
// whether they are all that is left: then Next returns them, and io.EOF, at
// once.
func (x *Exchange) Buffered() (n int, last bool) { return x.w - x.r, x.err == io.EOF }

// Next returns the next piece of the body, which is valid until the next call.
// At the end the error is io.EOF.
func (x *Exchange) Next() ([]byte, error) {
	if err := x.await(); err != nil {
		return nil, err
	}
	piece := x.buf[x.r:x.w]
	x.r = x.w
	return piece, nil
}

// Read implements [io.Reader] in place of Next.
func (x *Exchange) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if x.r == x.w && x.err == nil && len(p) >= len(x.buf) { // p serves as the buffer, so that nothing is copied
		own := x.buf
		x.buf = p
		x.read()
		n := x.w
		x.buf, x.r, x.w = own, 0, 0
		if n > 0 {
			return n, nil
		}
	}
	if err := x.await(); err != nil {
		return 0, err
	}
	n := copy(p, x.buf[x.r:x.w])
	x.r += n
	return n, nil
}

func (x *Exchange) await() error {
	for x.r == x.w {
		if x.err != nil {
			return x.err
		}
		x.read()
	}
	return nil
}

func (x *Exchange) read() {
	x.r, x.w = 0, 0
	n, err := x.conn.Read(x.buf)
	x.w = n
	switch {
	case n > 0:
		x.took(n)
	case err == io.EOF && x.body == bodyUpgraded:
		x.err = io.EOF
	case err == io.EOF && x.body == bodyToEnd:
		x.err = io.EOF
		x.release(false)
	case err == io.EOF:
		x.fail(io.ErrUnexpectedEOF)
	case err != nil:
		x.fail(err)
	}
}

// Trailer returns the fields after the body, once Next has returned io.EOF.
func (x *Exchange) Trailer() []http1.Field {
	if x.err != io.EOF || x.body != bodyChunked {
		return nil
	}
	return x.chunks.Trailer()
}

// Close ends the exchange; the connection of an answer that has not come to its
// end is given up, see Pool.Grace. The exchange must not be used after it.
func (x *Exchange) Close() error {
	if c, _ := x.detach(); c != nil {
		x.pool.giveUp(x.ctx, c)
	}
	if undisturbed := x.stop == nil || x.stop(); undisturbed && len(x.buf) == bufferSize {
		*x = Exchange{buf: x.buf, head: http1.ResponseHead{Fields: x.head.Fields[:0]}}
		exchanges.Put(x)
	}
	return nil
}
