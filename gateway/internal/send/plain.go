package send

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/internal/policy"
	"github.com/keyway-go/keyway/internal/wire/hop1"
	"github.com/keyway-go/keyway/internal/wire/http1"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// attemptPlain sends the request to a worker over HTTP/1.1, with its body if that is kept.
func (d *Dispatch) attemptPlain(t routing.Target, p *Peer) routing.Outcome {
	e := p.Plain.Begin()
	e.Method, e.Watched = d.Request.Method, d.From.Carry(e)
	e.Message = d.appendMessage(e.Message, t)
	err := e.Do(d.Ctx)
	for err == nil && e.Status < 200 {
		if e.Status != http.StatusContinue && d.Request.Interims != nil {
			d.Request.Interims.Interim(e.Status, plainFields(nil, e.Fields))
		}
		err = e.Continue()
	}
	if err == nil {
		d.Spare.answer = plainFields(d.Spare.answer, e.Fields)
		return d.answered(t, ByHTTP1, Answer{Status: e.Status, Length: e.ContentLength, Fields: d.Spare.answer, Body: PlainBody{e}})
	}
	d.From.Carry(nil)
	e.Close()
	return OutcomeOf(d.Ctx, t.Member, err, nil)
}

// isSimple reports whether the request fits into one write, and its head into HTTP/1.1 as it is.
func (d *Dispatch) isSimple() bool {
	r := &d.Request
	return r.Open == nil && r.Trailer == nil && !(d.Stream && r.Body != nil) && http1.SimpleRequest(r.Method, r.Target, r.Host)
}

// appendMessage appends the request as it goes to the worker.
func (d *Dispatch) appendMessage(b []byte, t routing.Target) []byte {
	r := &d.Request
	d.Spare.hop = d.appendHop(d.Spare.hop[:0], t)
	b = http1.AppendRequest(b, r.Method, r.Target, r.Host)
	for _, list := range [...]link.Fields{r.Fields, d.Spare.hop} {
		for name, value := range list.All() {
			b = http1.AppendField(b, name, value)
		}
	}
	length := int64(0)
	if d.HasBody() {
		length = r.ContentLength
	}
	b = append(http1.AppendRequestLength(b, r.Method, length), "\r\n"...)
	return r.AppendKept(b)
}

// appendHop appends fields that tell a worker over HTTP/1.1 what the link has places for.
func (d *Dispatch) appendHop(f link.Fields, t routing.Target) link.Fields {
	r := &d.Request
	var memory [64]byte // enough for the policy of most routes
	if r.Key != "" {
		f = link.AppendField(f, gateway.HeaderKey, url.PathEscape(r.Key))
	}
	if t.Epoch > 0 {
		f = link.AppendField(f, gateway.HeaderEpoch, strconv.AppendInt(memory[:0], t.Epoch, 10))
	}
	if r.Client != 0 {
		f = link.AppendField(f, hop.HeaderClient, strconv.AppendUint(memory[:0], r.Client, 10))
	}
	if len(r.Policy) > 0 {
		f = link.AppendField(f, hop.HeaderPolicy, policy.AppendText(memory[:0], r.Policy))
	}
	return f
}

// answered makes a the request's answer, unless it is the worker's refusal. It reads the rest of one if that is
// little, so that the connection can be used on.
func (d *Dispatch) answered(t routing.Target, way Way, a Answer) routing.Outcome {
	refusal := hop.ReadRefusal(a.field)
	if refusal == nil {
		d.way, d.Answer = way, a
		return routing.Outcome{}
	}
	for n := 0; n < 4<<10; {
		piece, err := a.Body.Next()
		if err != nil {
			break
		}
		n += len(piece)
	}
	d.From.Carry(nil)
	a.Body.Close()
	return OutcomeOf(d.Ctx, t.Member, refusal, nil)
}

// plainFields returns fields of HTTP/1.1 as a list of the link, in the memory of list
// if that is enough.
func plainFields(list link.Fields, fields []http1.Field) link.Fields {
	size := 0
	for _, f := range fields {
		size += len(f.Name) + len(f.Value) + 4
	}
	list = slices.Grow(list[:0], size)
	for _, f := range fields {
		list = link.AppendField(list, f.Name, f.Value)
	}
	return list
}

// PlainBody is the body of an answer over HTTP/1.1.
type PlainBody struct{ *hop1.Exchange }

// Trailer implements [AnswerBody].
func (b PlainBody) Trailer() link.Fields { return plainFields(nil, b.Exchange.Trailer()) }
