package link

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
)

// boundless is an [Overflow] with room for everything.
type boundless struct {
	parts chan []byte
	sent  chan error
}

func newBoundless(_ uint64, send func([]byte) error) Overflow {
	o := &boundless{make(chan []byte, 100), make(chan error, 1)}
	go func() {
		var err error
		for p := range o.parts {
			if err == nil {
				err = send(p)
			}
		}
		o.sent <- err
	}()
	return o
}

func (o *boundless) Write(p []byte) (int, error) {
	o.parts <- append([]byte(nil), p...)
	return len(p), nil
}

func (o *boundless) Idle() bool { return false }

func (o *boundless) End() error {
	close(o.parts)
	return <-o.sent
}

// TestTrailersFollowTheWholeBody: the last part of a body, which was collected when the client had stopped
// reading, precedes the trailers.
func TestTrailersFollowTheWholeBody(t *testing.T) {
	for _, sizes := range [][2]int{{0, 1}, {0, 100}, {50, 100}, {0, outSize - headerLen}, {0, outSize}} {
		room, last := sizes[0], sizes[1]
		synctest.Test(t, func(t *testing.T) {
			p := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
				w.OverflowTo(context.Background(), newBoundless)
				w.SetTrailer(AppendField(nil, "Sum", "1"))
				w.Write(make([]byte, initialWindow-room))
				w.Write(make([]byte, last))
			}, Config{})
			res, err := p.Do(t.Context(), &Request{Method: "GET", Target: "/", Host: "h"})
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			synctest.Wait()
			got, err := io.ReadAll(res.Body)
			if len(got) != initialWindow-room+last || err != nil || res.Body.Trailer().Header().Get("Sum") != "1" {
				t.Errorf("read %d bytes and %v, want %d and a trailer; %v", len(got), res.Body.Trailer().Header(), initialWindow-room+last, err)
			}
		})
	}
}
