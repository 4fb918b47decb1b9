package link

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// reopened is a body that is read from its start by each attempt.
type reopened struct {
	body         string
	opened, open atomic.Int32
}

func (b *reopened) request(length int64) *Request {
	return &Request{Method: "POST", Target: "/", Host: "h", ContentLength: length, Open: func() io.ReadCloser {
		b.opened.Add(1)
		b.open.Add(1)
		return &reopenedReader{Reader: strings.NewReader(b.body), of: b}
	}}
}

type reopenedReader struct {
	io.Reader
	of *reopened
}

func (r *reopenedReader) Close() error {
	r.of.open.Add(-1)
	return nil
}

// TestOpenedBodyIsSentAgain lets workers refuse a request before, while and after
// they read its body, and another one take it.
func TestOpenedBodyIsSentAgain(t *testing.T) {
	for _, size := range []int{0, 1, inlineBody, maxData, maxData + 1, initialWindow, initialWindow + 1, 1 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				no := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
					r.Body.Read(make([]byte, 100))
					w.Refuse(&RefusedError{Reason: Unavailable})
				}, Config{})
				yes := newPair(t, echo, Config{})
				for _, length := range []int64{int64(size), -1} {
					for _, trailer := range []func() Fields{nil, func() Fields { return AppendField(nil, "X", "y") }} {
						b := &reopened{body: strings.Repeat("abcdefg", size/7+1)[:size]}
						req := b.request(length)
						req.Trailer = trailer
						for range 3 {
							_, err := no.Do(t.Context(), req)
							want(t, err, ErrNotStarted)
						}
						for range 2 {
							got, err := fetch(t.Context(), &yes.Client, req)
							if got != b.body || err != nil {
								t.Errorf("got %d bytes, %v; want %d", len(got), err, size)
							}
						}
						<-req.BodyDone()
						if b.opened.Load() != 5 || b.open.Load() != 0 {
							t.Errorf("%d bodies were opened, and %d not closed; want 5 and 0", b.opened.Load(), b.open.Load())
						}
					}
				}
			})
		})
	}
}

// TestOpenedBodyFails: a request whose body cannot be read fails with the reason.
func TestOpenedBodyFails(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		name   string
		length int64
		body   io.Reader
		want   error
	}{
		{"breaks off", 10, io.MultiReader(strings.NewReader("abc"), errorReader{broken}), broken},
		{"is short", 10, strings.NewReader("abc"), ErrContentLength},
		{"is long", 2, strings.NewReader("abc"), ErrContentLength},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t, echo, Config{})
				req := &Request{Method: "POST", Target: "/", Host: "h", ContentLength: tt.length, Open: func() io.ReadCloser { return io.NopCloser(tt.body) }}
				_, err := fetch(t.Context(), &p.Client, req)
				want(t, err, tt.want)
				<-req.BodyDone()
			})
		})
	}
}

type errorReader struct{ err error }

func (r errorReader) Read([]byte) (int, error) { return 0, r.err }
