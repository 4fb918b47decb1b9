package link

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
)

// TestWatched: a request whose context is watched by others ends when they say that it
// has ended, whatever it waits for.
func TestWatched(t *testing.T) {
	gone := errors.New("the client has left")
	for name, tt := range map[string]struct {
		answer bool // its head comes
		before bool // the context ends before the request is sent
	}{
		"before":             {before: true},
		"waits for the head": {},
		"waits for the body": {answer: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				handled := make(chan error, 1)
				p := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
					if tt.answer {
						w.WriteHead(200, -1, nil)
						w.Flush()
					}
					<-r.Context().Done()
					handled <- context.Cause(r.Context())
				}, Config{})
				ctx, cancel := context.WithCancelCause(t.Context())
				req := &Request{Method: "GET", Target: "/", Host: "h", Watched: true}
				leave := func() {
					cancel(gone)
					req.Interrupt()
				}
				if tt.before {
					leave()
				}
				failed := make(chan error, 1)
				go func() {
					resp, err := p.Do(ctx, req)
					if err == nil {
						_, err = io.ReadAll(resp.Body)
						resp.Body.Close()
					}
					failed <- err
				}()
				synctest.Wait()
				leave()
				want(t, <-failed, gone)
				if !tt.before {
					want(t, <-handled, context.Canceled)
				}
			})
		})
	}
}
