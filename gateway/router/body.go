package router

import (
	"math"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/internal/wire/h2"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// beginBody makes the body a part of the request. Unless it is small or streams, it is read
// completely before any worker is asked for the key. Errors are those of [send.Dispatch.Keep].
func (x *upstreamRequest) beginBody(d *decision, upgrades bool) error {
	r, n, limit := &x.Request, x.Request.ContentLength, d.route.maxBody
	trailed := x.trailers != nil && len(x.trailers()) > 0
	small := n >= 0 && n <= d.route.smallBody && !trailed && !upgrades && !d.upstream
	call := !small && !x.HasBody() && hop.IsCall(x.source.version == "2.0", first(x.KeyHeader("Content-Type"))) && x.router.takesCalls(d.partition)
	if call && d.route.MaxBody == 0 {
		limit = math.MaxInt64
	}
	switch {
	case n > limit:
		return send.ErrBodyTooLarge
	case x.HasBody(): // a key was looked for in it
		if n == 0 {
			r.Open = nil
		}
	case n == 0:
		return nil
	case small:
		r.Body = &x.Body
		if s, ok := x.Body.Reader.(*h2.Stream); ok {
			s.Keep(&x.Reserved)
		}
		return nil
	default:
		r.Body, x.Stream = &x.Body, !upgrades && (call || d.route.Stream || d.upstream)
		if call && d.anyWorker {
			x.client.wait()
		}
		x.Body.Reader = &send.Limited{Reader: x.Body.Reader, Left: limit}
		if x.Stream {
			x.Body.Count = &x.part.received // it may last
			break
		}
		if trailed {
			r.ContentLength = -1 // in HTTP/1.1 no body of known length has trailers
		}
		if err := x.Keep(); err != nil {
			return err
		}
		if r.ContentLength == 0 {
			r.Open = nil
		}
	}
	x.addTrailers()
	return nil
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// takesCalls reports whether the operator of the partition's worker has configured it for gRPC.
func (rt *Router) takesCalls(partition int) bool {
	owner, _ := rt.cfg.Members.View().Owner(partition)
	return owner.GRPC
}

// addTrailers gives the request the trailers that may follow its body.
func (x *upstreamRequest) addTrailers() {
	if x.trailers == nil {
		return
	}
	rules, trailers := &x.route.rules, x.trailers
	list := trailers()
	for name := range list {
		if rules.IsTrailer(name) {
			x.Request.Fields = link.AppendField(x.Request.Fields, "Trailer", name)
		}
	}
	if len(list) == 0 {
		return
	}
	x.Request.Trailer = func() link.Fields {
		list := trailers()
		rules.StripTrailer(list)
		return link.AppendHeader(nil, list)
	}
	if !x.Stream {
		x.Request.ContentLength = -1
	}
}

// How long an answer waits until the end of the request's body is noticed, and the server then for the
// unwanted rest of a body.
const (
	bodyGrace = 50 * time.Millisecond
	restGrace = 500 * time.Millisecond
)

// awaitBody waits until the link no longer reads the client's body: servers forbid that once the
// handler has returned. An unwanted body is cut off.
func (x *upstreamRequest) awaitBody(cut func()) (wasCut bool) {
	done := x.Request.BodyDone()
	select {
	case <-done:
		return false
	case <-time.After(bodyGrace):
		cut()
		<-done
		return true
	}
}
