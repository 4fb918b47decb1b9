package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/sidecar"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// A handler learns from its context that it has taken too long, whether it waits
// for that or looks, and its client gets 504 unless it has answered. A call of the
// program itself has no such bound.
func TestHandlerTimeout(t *testing.T) {
	const timeout = time.Second
	for name, tt := range map[string]struct {
		handler func(http.ResponseWriter, *http.Request)
		status  int
	}{
		"waits": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, http.StatusGatewayTimeout},
		"looks": {func(_ http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				time.Sleep(time.Millisecond)
			}
		}, http.StatusGatewayTimeout},
		"looks late": {func(_ http.ResponseWriter, r *http.Request) {
			time.Sleep(timeout)
			if r.Context().Err() == nil {
				t.Error("the context goes on")
			}
		}, http.StatusGatewayTimeout},
		"answers": {func(rw http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			rw.WriteHeader(http.StatusTeapot)
		}, http.StatusTeapot},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := site.New(t, 16).Start(func(cfg *worker.Config) { cfg.Timeout = timeout })
				w.AwaitServing(t, 16)
				var cause error
				var deadline time.Time
				h := w.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					deadline, _ = r.Context().Deadline()
					tt.handler(rw, r)
					cause = context.Cause(r.Context())
				}))
				r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
				r.Header.Set(gateway.HeaderKey, "k")
				rec, begin := httptest.NewRecorder(), time.Now()
				h.ServeHTTP(rec, r)
				if took := time.Since(begin); rec.Code != tt.status || !errors.Is(cause, gateway.ErrTimeout) || took < timeout || took > timeout*11/10+time.Millisecond {
					t.Errorf("status %d, cause %v, after %v", rec.Code, cause, took)
				}
				if !deadline.Equal(begin.Add(timeout)) {
					t.Errorf("its deadline is %v after the start", deadline.Sub(begin))
				}
				if err := w.Do(t.Context(), "k", func(x gateway.Execution) error {
					time.Sleep(10 * timeout)
					return x.Context().Err()
				}); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// noMemory lets a client of the link keep nothing of a body, which then goes as it comes.
type noMemory struct{}

func (noMemory) Reserve(int) bool { return false }

// A client that does not send the body that it has begun holds the key for as long as
// an execution may take, and not longer.
func TestTrapASlowBodyHoldsItsKeyInTime(t *testing.T) {
	app := func(rw http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(rw, err)
	}
	behind := site.Serve(t, http.HandlerFunc(app))
	for name, over := range map[string]func(w *worker.Worker) http.Handler{
		"handler": func(w *worker.Worker) http.Handler { return w.Handler(http.HandlerFunc(app)) },
		"sidecar": func(w *worker.Worker) http.Handler { return kit.Must(sidecar.New(w, kit.Must(url.Parse(behind.URL)))) },
		"sidecar, net/http": func(w *worker.Worker) http.Handler {
			return kit.Must(sidecar.New(w, kit.Must(url.Parse(behind.URL+"/?a=1"))))
		},
	} {
		for _, length := range []int64{100, -1} {
			t.Run(fmt.Sprint(name, ", length ", length), func(t *testing.T) {
				w := site.New(t, 16).StartReady(func(cfg *worker.Config) { cfg.Timeout, cfg.MaxWait = 200*time.Millisecond, 8*time.Second })
				c := linkTo(t, w, w.Listen(t, over(w.Worker)))
				body, rest := io.Pipe()
				go func() { _, _ = rest.Write(make([]byte, 10)) }()
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					req := &link.Request{Method: "POST", Target: "/", Host: "x", Key: "k", Body: body, ContentLength: length, Memory: noMemory{}}
					if answer, err := c.Do(t.Context(), req); err == nil {
						answer.Body.Close()
					}
				}()
				kit.Eventually(t, "the key is held", func() bool { return errors.Is(w.TryDo(t.Context(), "k", ok), gateway.ErrLocked) })
				if err := w.Do(t.Context(), "k", ok); err != nil {
					t.Error(err)
				}
				rest.Close()
				<-ended
			})
		}
	}
}
