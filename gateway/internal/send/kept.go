package send

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strconv"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/internal/policy"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// attemptKept sends the request to a worker over HTTP/1.1 in net/http's form, which takes a body of any length. The
// body is kept, and is not read before the worker asks for it unless it is small.
func (d *Dispatch) attemptKept(t routing.Target, p *Peer) routing.Outcome {
	r := &d.Request
	target, err := url.ParseRequestURI(r.Target)
	if err != nil {
		return routing.Outcome{Err: err}
	}
	body, err := r.Open()
	if err != nil {
		return routing.Outcome{Err: fmt.Errorf("%w: %w", ErrClientBody, err)}
	}
	target.Scheme, target.Host = "http", t.Addr
	req := &http.Request{Method: r.Method, URL: target, Host: r.Host, Header: d.Header(t.Epoch), Body: body, ContentLength: r.ContentLength}
	if r.ContentLength > hop.MaxRepeatedBody {
		req.Header.Set("Expect", "100-continue")
	}
	if r.Interims != nil {
		passOn := func(status int, h textproto.MIMEHeader) error {
			r.Interims.Interim(status, link.AppendHeader(nil, http.Header(h)))
			return nil
		}
		req = req.WithContext(httptrace.WithClientTrace(d.Ctx, &httptrace.ClientTrace{Got1xxResponse: passOn}))
	} else {
		req = req.WithContext(d.Ctx)
	}
	res, err := p.Plain.RoundTrip(req)
	if err == nil {
		err = refusalOf(res)
	}
	if err != nil {
		return OutcomeOf(d.Ctx, t.Member, err, nil)
	}
	list := link.AppendHeader(nil, res.Header)
	for name := range res.Trailer {
		list = link.AppendField(list, "Trailer", name)
	}
	d.Answer = Answer{Status: res.StatusCode, Length: res.ContentLength, Fields: list, Body: &responseBody{ReadCloser: res.Body, response: res}}
	return routing.Outcome{}
}

// Header returns the request's header as it goes to a worker over HTTP/1.1, for a partition of that epoch, 0 for none.
func (d *Dispatch) Header(epoch int64) http.Header {
	r := &d.Request
	h := r.Fields.HeaderFor(6)
	if r.Key != "" {
		h[gateway.HeaderKey] = []string{url.PathEscape(r.Key)}
	}
	if epoch > 0 {
		h[gateway.HeaderEpoch] = []string{strconv.FormatInt(epoch, 10)}
	}
	if r.Client != 0 {
		h[hop.HeaderClient] = []string{strconv.FormatUint(r.Client, 10)}
	}
	if len(r.Policy) > 0 {
		h[hop.HeaderPolicy] = []string{policy.Text(r.Policy)}
	}
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = []string{""} // or net/http adds its own
	}
	return h
}

// refusalOf returns the refusal of a request that an answer is, nil for none. It reads the rest of one if that is
// little, so that the connection can be used on.
func refusalOf(res *http.Response) error {
	refusal := hop.ReadRefusal(res.Header.Get)
	if refusal == nil {
		return nil
	}
	_, _ = io.CopyN(io.Discard, res.Body, 4<<10)
	res.Body.Close()
	return refusal
}

// responseBody is the body of an answer in net/http's form.
type responseBody struct {
	io.ReadCloser
	response *http.Response
	buf      [8 << 10]byte
	ended    bool
}

func (b *responseBody) Read(p []byte) (n int, err error) {
	n, err = b.ReadCloser.Read(p)
	b.ended = b.ended || err == io.EOF
	return n, err
}

// Next implements [AnswerBody].
func (b *responseBody) Next() ([]byte, error) {
	n, err := b.Read(b.buf[:])
	return b.buf[:n], err
}

// Buffered implements [AnswerBody].
func (b *responseBody) Buffered() (n int, last bool) { return 0, b.ended }

// Trailer implements [AnswerBody].
func (b *responseBody) Trailer() link.Fields { return link.AppendHeader(nil, b.response.Trailer) }
