package link

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
)

// Request is a request for Client.Do. After an ErrNotStarted it may be given to Do again, of this
// or another Client: the part of Body that was read is sent again. It must not be in two calls of
// Do at once, nor be copied.
type Request struct {
	Method string // a token; CONNECT is not carried. With Call, a colon and a token
	Call   bool   // a call between members, see IsCall: without it Do sends none
	Target string // path?query, as in the first line of an HTTP/1.1 request
	Host   string
	Key    string // canonical bytes of the business key
	Epoch  int64  // highest epoch known of the key's partition; 0 for none
	Client uint64 // tells clients apart; 0 if it is not known
	Policy []byte // for the worker, in the users' own encoding; nil for none
	Fields Fields

	// Body is what to send; nil for none. ContentLength is its length, -1 if unknown. Do keeps a
	// body of known length up to 64 KiB (Keep) before it sends anything, so a slow client blocks
	// nothing at the worker. A goroutine reads any other body for as long as the worker wants it,
	// see BodyDone. Read has no context, so the caller must bound its time.
	Body          io.Reader
	ContentLength int64

	// Open, if set, returns the body from its start and replaces Body. Each attempt calls it; a
	// goroutine reads the result and closes it. Since nothing is kept, a request of any length can
	// be sent again. Neither Open nor the reader that it returns may wait for the body's sender.
	Open func() io.ReadCloser

	// Memory bounds what is kept of Body; nil for no bound. A body that does not fit is sent as it
	// arrives.
	Memory Memory

	// Trailer, if set, is called when Body has come to its end.
	Trailer func() Fields

	// Account, if set, learns how long the worker continues with the request after it was given up.
	Account Account

	// Repeatable says that the caller repeats the request if it fails, even if it has run. The
	// request fails with ErrLost as soon as the peer is stalled.
	Repeatable bool

	// Interims, if set, gets the interim answers.
	Interims Interims

	// Watched says that the caller calls Interrupt after the context given to Do has ended. The
	// link then does not watch the context itself, which costs less.
	Watched bool

	up      upload
	current atomic.Pointer[clientStream] // of a request that is watched
}

// Interrupt lets a request that is Watched see that its context has ended. It may be
// called at any time.
func (r *Request) Interrupt() {
	if st := r.current.Load(); st != nil {
		st.poke()
	}
}

// Interims takes the interim answers (status 102 to 199) to a request, in their
// order and before Do returns. There are 8 at most, each with a head of at most
// MaxHeaderBytes; more break the protocol.
type Interims interface {
	// Interim is called by the goroutine that is in Do. fields may be kept.
	Interim(status int, fields Fields)
}

// Account is charged for requests that were given up before their answer ended, since the worker
// may continue with them.
type Account interface {
	// Abandon is called when a request is given up. The link calls ended when the worker reports
	// that the handler has returned, or when the connection has ended. Until then the request
	// counts as one of the streams requests that the worker takes at once on the connection.
	// Neither function may block.
	Abandon(streams int) (ended func())
}

// Memory says how much of a body may be kept, so that it is read before anything
// is sent, and can be sent again. Reserve reports whether the first n bytes of
// it may.
type Memory interface{ Reserve(n int) bool }

func (r *Request) reserve(n int) bool { return r.Memory == nil || r.Memory.Reserve(n) }

// declared returns the length of the body that the worker is told, -1 for none.
func (r *Request) declared() int64 {
	if r.hasBody() {
		return r.ContentLength
	}
	switch r.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch:
		return 0 // these say so, as http.Transport has it
	}
	return -1
}

// BodyDone returns a channel that is closed once the link no longer reads Body, or the result of
// Open: at once if it does not read. After Do and Response.Body.Close, at most one Read is still
// under way; the owner of Body's source can interrupt it.
func (r *Request) BodyDone() <-chan struct{} {
	r.up.mu.Lock()
	defer r.up.mu.Unlock()
	if r.up.reading != nil {
		return r.up.reading
	}
	done := make(chan struct{})
	close(done)
	return done
}

// upload sends a request's body: each attempt has a goroutine that copies it to its stream, after that of the attempt before.
// It keeps what it has read of Body for another attempt until the worker grants more than the initial window, or Do has
// returned an answer; a worker refuses before either. settled is final.
type upload struct {
	// Keep owns these, and then the copy that is under way.
	kept    *buffer // at most initialWindow bytes
	total   int64   // bytes read of Body
	err     error   // of Body: io.EOF at its end
	streams bool    // a small body is sent as it comes: there was no memory for it

	mu       sync.Mutex    // guards what follows
	stream   *clientStream // of the present attempt; nil between two
	admitted bool          // kept no longer starts at the start of the body
	unkept   bool          // for want of memory
	settled  bool          // no other attempt will follow
	reading  chan struct{} // closed when all copies have ended; nil when there is none
}

// small reports whether Do keeps the body before it sends the head.
func (r *Request) small() bool {
	return r.ContentLength >= 0 && r.ContentLength <= initialWindow && r.Body != nil && r.Open == nil && !r.up.streams
}

// firstRead is how much is read of a small body at first. Then there is memory
// for at most growth times as much as has come.
const (
	firstRead = 4 << 10
	growth    = 16
)

// Keep reads a body of at most 64 KiB, as far as there is memory for it, and reports
// whether it now has all of it: each attempt then sends that.
// It does nothing about another body, nor once Do has sent of this one.
func (r *Request) Keep() (whole bool, err error) {
	u := &r.up
	switch {
	case !r.hasBody():
		return true, nil
	case !r.small():
		return false, nil
	case u.err == io.EOF:
		return u.kept != nil, nil
	}
	if u.kept == nil {
		u.kept = pool.get(int(min(r.ContentLength, firstRead)))
	}
	for int64(len(u.kept.b)) < r.ContentLength {
		have := len(u.kept.b)
		room := min(int(r.ContentLength), max(firstRead, growth*have))
		if !r.reserve(room) {
			u.streams = true
			return false, nil
		}
		if cap(u.kept.b) < room {
			u.enlarge(room)
		}
		n, err := io.ReadAtLeast(r.Body, u.kept.b[have:room], 1)
		u.kept.b = u.kept.b[:have+n]
		u.total += int64(n)
		if err != nil {
			return false, fmt.Errorf("link: reading the request's body: %w", noEOF(err))
		}
	}
	u.err = io.EOF
	return true, nil
}

// AppendKept appends what Keep has read. Only before Do has returned an answer is it there.
func (r *Request) AppendKept(b []byte) []byte {
	if r.up.kept != nil {
		b = append(b, r.up.kept.b...)
	}
	return b
}

// enlarge moves what is kept to a buffer with room for n bytes.
func (u *upload) enlarge(n int) {
	bigger := pool.get(n)
	bigger.b = append(bigger.b, u.kept.b...)
	pool.put(u.kept)
	u.kept = bigger
}

// detach ends an attempt that has ended with err, and returns the request's error. If no attempt may
// follow that sends the body from its start, the kept part is freed.
func (r *Request) detach(err error) error {
	u := &r.up
	u.mu.Lock()
	defer u.mu.Unlock()
	again := errors.Is(err, ErrNotStarted)
	if again && !u.admitted {
		u.stream = nil
		return err
	}
	u.settled = true
	u.freeLocked()
	switch {
	case !again:
		return err
	case u.unkept:
		return notStarted(fmt.Errorf("%w: %w", ErrNotKept, err))
	}
	return tooLate(err)
}

func (r *Request) replayable() bool {
	r.up.mu.Lock()
	defer r.up.mu.Unlock()
	return !r.up.admitted && !r.up.settled
}
