package send

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/internal/policy"
	"github.com/keyway-go/keyway/internal/wire/grammar"
	"github.com/keyway-go/keyway/internal/wire/hop1"
	"github.com/keyway-go/keyway/internal/wire/http1"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// attemptPlain sends the request to a worker over HTTP/1.1, with its body if that is kept.
func (d *Dispatch) attemptPlain(t routing.Target, p *Peer) routing.Outcome {
	e := p.Plain.Begin()
	e.Method, e.Watched = d.Request.Method, d.From.Carry(e)
	e.Message = d.appendMessage(e.Message, t.Epoch)
	err := e.Do(d.Ctx)
	for err == nil && e.Status < 200 {
		if e.Status != http.StatusContinue && d.Request.Interims != nil {
			d.Request.Interims.Interim(e.Status, plainFields(nil, e.Fields))
		}
		err = e.Continue()
	}
	if err == nil {
		err = plainRefusal(e)
	}
	if err == nil {
		d.Spare = plainFields(d.Spare, e.Fields)
		d.Answer = Answer{Status: e.Status, Length: e.ContentLength, Fields: d.Spare, Body: PlainBody{e}}
		return routing.Outcome{}
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
func (d *Dispatch) appendMessage(b []byte, epoch int64) []byte {
	r := &d.Request
	b = http1.AppendRequest(b, r.Method, r.Target, r.Host)
	for name, value := range r.Fields.All() {
		b = http1.AppendField(b, name, value)
	}
	if r.Key != "" {
		b = http1.AppendField(b, gateway.HeaderKey, url.PathEscape(r.Key))
	}
	if epoch > 0 {
		b = append(b, gateway.HeaderEpoch+": "...)
		b = strconv.AppendInt(b, epoch, 10)
		b = append(b, "\r\n"...)
	}
	if r.Client != 0 {
		b = append(b, hop.HeaderClient+": "...)
		b = strconv.AppendUint(b, r.Client, 10)
		b = append(b, "\r\n"...)
	}
	if len(r.Policy) > 0 {
		b = http1.AppendField(b, hop.HeaderPolicy, policy.Text(r.Policy))
	}
	length := int64(0)
	if d.HasBody() {
		length = r.ContentLength
	}
	b = append(http1.AppendRequestLength(b, r.Method, length), "\r\n"...)
	return r.AppendKept(b)
}

// plainRefusal returns the worker's refusal of the request, nil for none. It reads
// the rest of one if that is little, so that the connection can be used on.
func plainRefusal(e *hop1.Exchange) error {
	refusal := hop.ReadRefusal(func(name string) string {
		for _, f := range e.Fields {
			if strings.EqualFold(grammar.Text(f.Name), name) {
				return string(f.Value)
			}
		}
		return ""
	})
	if refusal == nil {
		return nil
	}
	for n := 0; n < 4<<10; {
		piece, err := e.Next()
		if err != nil {
			break
		}
		n += len(piece)
	}
	return refusal
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
