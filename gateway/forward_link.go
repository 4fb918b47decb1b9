package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/keyway-go/keyway/internal/link"
	"github.com/keyway-go/keyway/ring"
)

// linkConns is how many connections carry the requests to one worker.
const linkConns = 1

func (ps *peers) newLink(addr string) *link.Client {
	return &link.Client{
		Addr:   addr,
		Conns:  linkConns,
		Config: ps.link,
		Dial:   func(ctx context.Context) (net.Conn, error) { return ps.dial(ctx, "tcp", addr) },
	}
}

// linked reports whether req can go to a worker over the link: not if it wants
// to leave HTTP.
func linked(m ring.Member, req *http.Request) bool {
	return m.Link && req.Header.Get("Upgrade") == ""
}

// attemptLink sends the request over the link.
func (x *passage) attemptLink(out *http.Request, p *peer, t target) (*http.Response, outcome) {
	r := x.linkRequest(out)
	r.Epoch = t.epoch
	p.users.Add(1)
	answer, err := p.link.Do(out.Context(), r)
	if err != nil {
		p.leave()
		return nil, x.classifyLink(out.Context(), t, err)
	}
	return newLinkResponse(out, answer, p), outcome{}
}

// linkRequest returns the request as the link carries it. One serves for all
// attempts, so that what was read of the body is there for each.
func (x *passage) linkRequest(out *http.Request) *link.Request {
	if x.linkReq != nil {
		return x.linkReq
	}
	head := out.WithContext(out.Context())
	head.Body = nil
	head.Header = out.Header.Clone()
	head.Header.Del(HeaderKey)
	r := link.NewRequest(head)
	r.Key = x.key
	r.ContentLength = 0
	switch {
	case x.body.stream != nil:
		r.Body, r.ContentLength = x.body.reader(), out.ContentLength
		if r.ContentLength == 0 {
			r.ContentLength = -1
		}
	case x.body.data != nil:
		r.Body, r.ContentLength = bytes.NewReader(x.body.data), int64(len(x.body.data))
	}
	x.linkReq = r
	return r
}

// classifyLink says what an error of the link means.
func (x *passage) classifyLink(ctx context.Context, t target, err error) outcome {
	refusal, refused := errors.AsType[*link.RefusedError](err)
	switch {
	case refused && refusal.Reason == link.NotOwner:
		o := outcome{verdict: notOwner, err: errNoOwnerSaid}
		if refusal.Owner != "" {
			o.hint = hint{owner: refusal.Owner, epoch: refusal.Epoch}
		}
		return o
	case refused && refusal.Reason == link.Busy:
		return outcome{err: ErrBusy}
	case refused:
		return outcome{verdict: notStarted, err: errNotAdmitting}
	case ctx.Err() != nil:
		return outcome{err: context.Cause(ctx)}
	}
	if client := x.body.failed.Load(); client != nil {
		return outcome{err: errors.Join(errClientBody, *client)}
	}
	if errors.Is(err, link.ErrHeaderTooLarge) {
		return outcome{err: err}
	}
	if errors.Is(err, link.ErrNotStarted) {
		return outcome{verdict: notStarted, err: fmt.Errorf("%s at %s: %w", t.Name, t.Addr, err)}
	}
	return outcome{err: fmt.Errorf("%w: %s at %s: %w", errBroken, t.Name, t.Addr, err)}
}

// linkBody is the body of an answer. At its end it fills in the trailers.
type linkBody struct {
	body *link.Body
	res  *http.Response
	peer *peer
	once sync.Once
}

func newLinkResponse(out *http.Request, answer *link.Response, p *peer) *http.Response {
	res := &http.Response{
		Status:        http.StatusText(answer.Status),
		StatusCode:    answer.Status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        answer.Fields.Header(),
		ContentLength: answer.ContentLength,
		Request:       out,
	}
	if res.Header == nil {
		res.Header = make(http.Header)
	}
	if answer.ContentLength >= 0 {
		res.Header.Set("Content-Length", fmt.Sprint(answer.ContentLength))
	}
	for _, names := range res.Header["Trailer"] {
		for name := range strings.SplitSeq(names, ",") {
			if res.Trailer == nil {
				res.Trailer = make(http.Header)
			}
			res.Trailer[http.CanonicalHeaderKey(strings.TrimSpace(name))] = nil
		}
	}
	delete(res.Header, "Trailer")
	res.Body = &linkBody{body: answer.Body, res: res, peer: p}
	return res
}

func (b *linkBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if err == io.EOF {
		for name, values := range b.body.Trailer().Header() {
			if b.res.Trailer == nil {
				b.res.Trailer = make(http.Header)
			}
			b.res.Trailer[name] = values
		}
		stripKeyway(b.res.Trailer)
	}
	return n, err
}

func (b *linkBody) Close() error {
	b.once.Do(b.peer.leave)
	return b.body.Close()
}
