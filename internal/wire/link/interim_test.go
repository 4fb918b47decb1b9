package link

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// heard is what came of interim answers.
type heard []string

func (h *heard) Interim(status int, f Fields) {
	*h = append(*h, fmt.Sprint(status, " ", f.Header()))
}

// TestInterim: interim answers come in their order, before the answer, and as
// many as may be.
func TestInterim(t *testing.T) {
	hint := AppendField(nil, "Link", "</a>")
	large := AppendField(nil, "Link", strings.Repeat("x", 64<<10))
	tests := map[string]struct {
		handler HandlerFunc
		want    []string
	}{
		"one":  {func(w *ResponseWriter, r *ServerRequest) { want(t, w.WriteInterim(103, hint), nil) }, []string{"103 map[Link:[</a>]]"}},
		"none": {func(w *ResponseWriter, r *ServerRequest) {}, nil},
		"not interim": {func(w *ResponseWriter, r *ServerRequest) {
			for _, status := range []int{-1, 0, 99, 100, 101, 200} {
				if w.WriteInterim(status, nil) == nil {
					t.Errorf("%d was sent", status)
				}
			}
		}, nil},
		"after the head": {func(w *ResponseWriter, r *ServerRequest) {
			w.WriteHead(200, -1, nil)
			want(t, w.WriteInterim(103, hint), ErrAnswered)
		}, nil},
		"refused after it": {func(w *ResponseWriter, r *ServerRequest) {
			w.WriteInterim(102, nil)
			want(t, w.Refuse(&RefusedError{Reason: Busy}), ErrAnswered)
		}, []string{"102 map[]"}},
		"too large": {func(w *ResponseWriter, r *ServerRequest) {
			want(t, w.WriteInterim(103, large), nil)
			w.WriteInterim(199, nil)
		}, []string{"199 map[]"}},
		"many": {func(w *ResponseWriter, r *ServerRequest) {
			for range 100 {
				want(t, w.WriteInterim(102, nil), nil)
			}
		}, slices.Repeat([]string{"102 map[]"}, maxInterim)},
		"by net/http": {HTTPHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "</a>")
			w.Header().Set("Content-Length", "2")
			w.Header().Set("Trailer", "Sum")
			w.WriteHeader(100)
			w.WriteHeader(103)
			w.Header().Del("Link")
			io.WriteString(w, "ok")
		})).ServeLink, []string{"103 map[Link:[</a>]]"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t, tt.handler, Config{})
				defer p.stop()
				for _, hear := range []bool{true, false} {
					var got heard
					req := &Request{Method: "GET", Target: "/", Host: "h"}
					if hear {
						req.Interims = &got
					}
					resp, err := p.Do(t.Context(), req)
					if err != nil {
						t.Fatal(err)
					}
					if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.Status != 200 || resp.Fields.Header().Get("Link") != "" {
						t.Errorf("%d %v, %v", resp.Status, resp.Fields.Header(), err)
					}
					resp.Body.Close()
					if hear && !slices.Equal(got, tt.want) {
						t.Errorf("interim answers %q, want %q", got, tt.want)
					}
				}
			})
		})
	}
}

// TestBadInterim: what a server may not do with interim answers ends the
// stream, as one of which nobody knows whether it started.
func TestBadInterim(t *testing.T) {
	response := func(status int, end bool, f Fields) []byte {
		head := responseHead{status: status, length: -1, fields: f}
		return appendFrame(nil, header{kind: kindResponse, end: end, stream: 1}, head.append(nil))
	}
	early := response(103, false, nil)
	tests := map[string][]byte{
		"100":            response(100, false, nil),
		"101":            response(101, false, nil),
		"with an end":    response(103, true, nil),
		"too large":      response(103, false, AppendField(nil, "A", strings.Repeat("x", 64<<10))),
		"too many":       slices.Repeat(early, maxInterim+1),
		"then a refusal": appendFrame(early, header{kind: kindRefused, stream: 1, end: true}, appendRefusal(nil, &RefusedError{Reason: Busy})),
		"then a body":    appendFrame(early, header{kind: kindData, stream: 1, end: true}, []byte("x")),
		"then trailers":  appendFrame(early, header{kind: kindTrailers, stream: 1, end: true}, nil),
	}
	for name, frames := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				defer far.Close()
				peer := newFakePeer(far)
				c := &Client{Dial: func(context.Context) (net.Conn, error) { return near, nil }, Config: logless()}
				defer c.Close()
				done := make(chan struct{})
				go func() {
					defer close(done)
					peer.handshake(t)
					peer.frame(t)
					go far.Write(slices.Clone(frames))
					if name == "too large" || name == "then a body" {
						return // the connection ends
					}
					h, b := peer.frame(t)
					if code, _ := binary.Uvarint(b); h.kind != kindReset || Code(code) != CodeMalformed {
						t.Errorf("%v %d", h.kind, code)
					}
				}()
				var got heard
				_, err := c.Do(t.Context(), &Request{Method: "GET", Target: "/", Host: "h", Interims: &got})
				if !errors.Is(err, ErrProtocol) {
					t.Errorf("error %v", err)
				}
				wantNot(t, err, ErrNotStarted)
				<-done
				if len(got) > maxInterim {
					t.Errorf("%d interim answers", len(got))
				}
			})
		})
	}
}
