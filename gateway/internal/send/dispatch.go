package send

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/gateway/internal/spool"
	"github.com/keyway-go/keyway/internal/wire/hop1"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

// Dispatch is a request on its way to a worker and back, over the link or plain HTTP/1.1. Its
// router's or client's goroutine owns it. An attempt over the link sets Peer; the attempt that
// succeeds sets Answer.
type Dispatch struct {
	Workers *Workers
	Ctx     context.Context
	From    Carrier

	Destination
	Request  link.Request
	Body     Body
	Sent     bool // there has been an attempt over the link
	Stream   bool // the body goes to the worker as it comes
	Reserved Reservation
	kept     *spool.Spool // the body, if it was not small or there was no memory for it; nil otherwise

	Answer   Answer
	way      Way                               // of Answer
	Response *link.Response                    // behind Answer; nil for other ways than the link
	Peer     *Peer                             // that answers over the link, or still may
	Spare    struct{ answer, hop link.Fields } // memory for an attempt over HTTP/1.1
	untraced link.Fields                       // the request's, without the Trace Context of an attempt; nil before one
}

// Carrier is told what carries a request.
type Carrier interface {
	// carry says what now carries the request, nil for nothing any more. It
	// reports whether that is interrupted when the request's context ends.
	Carry(e Interruptible) (watched bool)
}

// Interruptible is implemented by [hop1.Exchange] and [link.Request].
type Interruptible interface{ Interrupt() }

// HasBody reports whether the request has a body.
func (d *Dispatch) HasBody() bool { return d.Request.Body != nil || d.Request.Open != nil }

// Attempt sends the request to a worker, whose connections p has.
func (d *Dispatch) Attempt(t routing.Target, p *Peer) routing.Outcome {
	d.Request.Fields = d.tracedFields()
	switch streams := d.Stream && d.Request.Body != nil; {
	case streams && !t.Link && d.Sent:
		return routing.Outcome{Verdict: routing.NotStarted, Err: errors.New("the body has been read for another worker")}
	case !streams:
		if err := d.Keep(); err != nil {
			return routing.Outcome{Err: err}
		}
	}
	switch {
	case !t.Link && d.isSimple():
		return d.attemptPlain(t, p)
	case !t.Link:
		return d.attemptGeneral(t, p, "")
	}
	d.Sent, d.Peer, d.Request.Epoch = true, p, t.Epoch
	p.Use()
	d.Request.Watched = d.From.Carry(&d.Request)
	res, err := p.link.Do(d.Ctx, &d.Request)
	if err != nil {
		d.From.Carry(nil)
		p.Leave()
		d.Peer = nil
		d.Workers.accuse(t, d.Request.Key, err)
		return OutcomeOf(d.Ctx, t.Member, err, d.Body.Failed.Load())
	}
	d.Response = res
	d.way, d.Answer = ByLink, Answer{Status: res.Status, Length: res.ContentLength, Fields: res.Fields, Body: res.Body}
	return routing.Outcome{}
}

// Keep reads the whole body, for this and later attempts. A small one is kept in memory if there is room, any other in
// a spool. The error wraps ErrClientBody, ErrBodyTooLarge or ErrBodiesFull.
func (d *Dispatch) Keep() error {
	r := &d.Request
	if r.Body == nil {
		return nil
	}
	whole, err := r.Keep()
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrClientBody, err)
	case whole:
		return nil
	}
	d.kept = d.Reserved.NewSpool()
	_, err = d.kept.ReadFrom(io.MultiReader(bytes.NewReader(r.AppendKept(nil)), &d.Body))
	switch failed := d.Body.Failed.Load(); {
	case failed != nil && errors.Is(*failed, ErrBodyTooLarge), errors.Is(err, spool.ErrTooLong):
		return ErrBodyTooLarge
	case failed != nil:
		return fmt.Errorf("%w: %w", ErrClientBody, *failed)
	case err != nil:
		return fmt.Errorf("%w: %w", ErrBodiesFull, err)
	}
	kept := d.kept
	kept.CloseWrite(nil)
	r.Body, r.ContentLength = nil, kept.Len()
	r.Open = func() io.ReadCloser { return kept.NewReader() }
	if r.Trailer != nil {
		r.ContentLength = -1 // in HTTP/1.1 no body of known length has trailers
	}
	return nil
}

// Taken returns the body, as far as it was read.
func (d *Dispatch) Taken() ([]byte, error) {
	if d.kept == nil {
		return d.Request.AppendKept(nil), nil
	}
	reader := d.kept.NewReader()
	defer reader.Close()
	return io.ReadAll(reader)
}

// By returns what has carried the answer.
func (d *Dispatch) By() Way {
	if d.Answer.Body == nil {
		return ByRouter
	}
	return d.way
}

// End ends the use of the answer, which must have been read to its end or is given
// up, and of the kept body.
func (d *Dispatch) End() {
	if d.kept != nil {
		d.kept.Close()
	}
	if d.Answer.Body == nil {
		return
	}
	d.Answer.Body.Close()
	if d.Peer != nil {
		d.Peer.Leave()
	}
}

// OutcomeOf says what it means that an attempt at m has failed with err, over the
// link or HTTP/1.1. client is the error of reading the client's body, nil for none.
func OutcomeOf(ctx context.Context, m ring.Member, err error, client *error) routing.Outcome {
	refusal, refused := errors.AsType[*link.RefusedError](err)
	notStarted := errors.Is(err, link.ErrNotStarted) || errors.Is(err, hop1.ErrNotStarted)
	settled := func(err error) routing.Outcome {
		if !notStarted {
			err = fmt.Errorf("%w: %w", gateway.ErrMayHaveRun, err)
		}
		return routing.Outcome{Err: err}
	}
	switch {
	case client != nil:
		return settled(fmt.Errorf("%w: %w", ErrClientBody, *client))
	case errors.Is(err, link.ErrNotKept):
		return routing.Outcome{Err: ErrBodiesFull}
	case refused && refusal.Reason == link.NotOwner:
		return routing.Outcome{Verdict: routing.NotOwner, Hint: routing.Hint{Owner: refusal.Owner, Epoch: refusal.Epoch}, Err: err}
	case refused && refusal.Reason == link.Busy:
		return routing.Outcome{Err: fmt.Errorf("%w: %s at %s", ErrBusy, m.Name, m.Addr)}
	case ctx.Err() != nil:
		return settled(context.Cause(ctx))
	case errors.Is(err, link.ErrHeaderTooLarge):
		return settled(err)
	case errors.Is(err, link.ErrTooManyStreams), errors.Is(err, hop1.ErrFull):
		return routing.Outcome{Err: fmt.Errorf("%w: %s at %s", ErrWorkerFull, m.Name, m.Addr)}
	case notStarted:
		return routing.Outcome{Verdict: routing.NotStarted, Waited: errors.Is(err, link.ErrWaited), Err: fmt.Errorf("%s at %s: %w", m.Name, m.Addr, err)}
	}
	return settled(fmt.Errorf("%s at %s: %w", m.Name, m.Addr, err))
}
