package router

import (
	"context"
	"errors"
	"fmt"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/internal/wire/hop1"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

// errOtherWay is the error of a request that has not been sent, and cannot be as it is:
// there was no memory for its small body, or over HTTP/1.1 only a relay can carry it.
var errOtherWay = errors.New("router: the request has to go another way")

// dispatch is a request on its way to a worker and back, over the link or over plain
// HTTP/1.1, whoever has made it.
type dispatch struct {
	workers *workers
	ctx     context.Context
	from    carrying

	destination
	request  link.Request
	body     clientBody
	sent     bool   // there has been an attempt over the link
	kept     bool   // the body stands in data
	data     []byte // for workers that do not take the link; a part of the body if there was no room for more
	reserved reservation

	answer   workerAnswer
	response *link.Response // that answer is made of; nil if it came another way
	peer     *peer          // that answers over the link, or may yet
	memory   link.Fields    // for the answer's
	untraced link.Fields    // the request's, without the Trace Context of an attempt; nil before one
}

// carrying is told what carries a request.
type carrying interface {
	// carry says what now carries the request, nil for nothing any more. It
	// reports whether that is interrupted when the request's context ends.
	carry(e interruptible) (watched bool)
}

// interruptible is implemented by [hop1.Exchange] and [link.Request].
type interruptible interface{ Interrupt() }

func (d *dispatch) hasBody() bool { return d.request.Body != nil || d.request.Open != nil }

// takesLink reports whether the request goes over the link, as far as is known now.
func (d *dispatch) takesLink() bool {
	t, ok := d.workers.routes.Owner(d.partition)
	return !ok || t.Link
}

// attempt sends the request to a worker, whose connections p has.
func (d *dispatch) attempt(t routing.Target, p *peer) routing.Outcome {
	d.request.Fields = d.tracedFields()
	if !t.Link {
		return d.attemptPlain(t, p)
	}
	d.sent, d.peer, d.request.Epoch = true, p, t.Epoch
	p.use()
	d.request.Watched = d.from.carry(&d.request)
	res, err := p.link.Do(d.ctx, &d.request)
	if err != nil {
		d.from.carry(nil)
		p.leave()
		d.peer = nil
		if d.request.Whole && errors.Is(err, link.ErrNotKept) {
			if d.sent = false; !d.kept {
				d.data = d.request.Taken()
			}
			return routing.Outcome{Err: errOtherWay}
		}
		return outcomeOf(d.ctx, t.Member, err, d.body.failed.Load())
	}
	d.response = res
	d.answer = workerAnswer{status: res.Status, length: res.ContentLength, fields: res.Fields, body: res.Body}
	return routing.Outcome{}
}

// by returns what has carried the answer.
func (d *dispatch) by() way {
	switch {
	case d.answer.body == nil:
		return byRouter
	case d.peer != nil:
		return byLink
	}
	return byHTTP1
}

// end ends the use of the answer, which must have been read to its end or is given
// up.
func (d *dispatch) end() {
	if d.answer.body == nil {
		return
	}
	d.answer.body.Close()
	if d.peer != nil {
		d.peer.leave()
	}
}

// outcomeOf says what it means that an attempt at m has failed with err, over the
// link or HTTP/1.1. client is the error of reading the client's body, nil for none.
func outcomeOf(ctx context.Context, m ring.Member, err error, client *error) routing.Outcome {
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
		return settled(fmt.Errorf("%w: %w", errClientBody, *client))
	case errors.Is(err, link.ErrNotKept):
		return routing.Outcome{Err: errBodiesFull}
	case refused && refusal.Reason == link.NotOwner:
		return routing.Outcome{Verdict: routing.NotOwner, Hint: routing.Hint{Owner: refusal.Owner, Epoch: refusal.Epoch}, Err: err}
	case refused && refusal.Reason == link.Busy:
		return routing.Outcome{Err: fmt.Errorf("%w: %s at %s", errBusy, m.Name, m.Addr)}
	case ctx.Err() != nil:
		return settled(context.Cause(ctx))
	case errors.Is(err, link.ErrHeaderTooLarge):
		return settled(err)
	case errors.Is(err, link.ErrTooManyStreams), errors.Is(err, hop1.ErrFull):
		return routing.Outcome{Err: fmt.Errorf("%w: %s at %s", errWorkerFull, m.Name, m.Addr)}
	case notStarted:
		return routing.Outcome{Verdict: routing.NotStarted, Err: fmt.Errorf("%s at %s: %w", m.Name, m.Addr, err)}
	}
	return settled(fmt.Errorf("%s at %s: %w", m.Name, m.Addr, err))
}
