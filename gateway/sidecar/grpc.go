package sidecar

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/wire/hop2"
)

// isGRPC reports whether a header is that of a call of gRPC, or of its answer.
func isGRPC(h http.Header) bool { return strings.HasPrefix(h.Get("Content-Type"), "application/grpc") }

// grpcAnswer is an app's answer to a call of gRPC: messages, and a status in trailers
// (https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md).
type grpcAnswer struct {
	answer *http.Response
	prefix [5]byte // of the message that comes: whether it is compressed, and its length
	have   int     // bytes of prefix that have come
	left   uint64  // bytes of the message that have not
}

// newGRPCAnswer returns nil for any other answer.
func newGRPCAnswer(res *http.Response) *grpcAnswer {
	if res.ProtoMajor != 2 || !isGRPC(res.Header) {
		return nil
	}
	return &grpcAnswer{answer: res}
}

// follow takes more of the body, and err, which says whether more follows. If the body breaks off
// between two messages because the call has taken too long, it ends regularly instead, with
// trailers that say so.
func (g *grpcAnswer) follow(p []byte, err error) error {
	for len(p) > 0 {
		if g.left > 0 {
			n := min(g.left, uint64(len(p)))
			g.left -= n
			p = p[n:]
			continue
		}
		n := copy(g.prefix[g.have:], p)
		p = p[n:]
		if g.have += n; g.have == len(g.prefix) {
			g.have, g.left = 0, uint64(binary.BigEndian.Uint32(g.prefix[1:]))
		}
	}
	if g.have > 0 || g.left > 0 || !errors.Is(err, gateway.ErrTimeout) {
		return err
	}
	if g.answer.Trailer == nil {
		g.answer.Trailer = make(http.Header)
	}
	g.answer.Trailer.Set("Grpc-Status", deadlineExceeded)
	g.answer.Trailer.Set("Grpc-Message", "the call was not answered in time: it may have run")
	return io.EOF
}

// deadlineExceeded is the status DEADLINE_EXCEEDED of gRPC.
const deadlineExceeded = "4"

// h2Transport sends requests to an app that speaks HTTP/2 without TLS.
type h2Transport struct {
	hop2.Transport
	sidecar *sidecar
}

// RoundTrip implements [http.RoundTripper]. A gRPC call is given up as soon as its client has left,
// any other request when it is abandoned.
func (t *h2Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	client := t.sidecar.Held(r.Context()).Client()
	if !isGRPC(r.Header) {
		return t.Transport.RoundTrip(r)
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	context.AfterFunc(client, func() { cancel(context.Cause(client)) }) // at the latest when it is answered
	return t.Transport.RoundTrip(r.WithContext(ctx))
}
