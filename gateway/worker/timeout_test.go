package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/workertest"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// status sends a request and returns the status of the answer to it.
type status func(t *testing.T, s *sidecarSite, key string) int

func statusOverLink(t *testing.T, s *sidecarSite, key string) int {
	res, err := s.links.Do(t.Context(), &link.Request{Method: "GET", Target: "/", Host: "x", Key: key})
	if err != nil {
		t.Error(err)
		return 0
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	if res.Status == http.StatusGatewayTimeout && strings.Contains(string(body), "http://") {
		t.Errorf("the client reads %q", body)
	}
	return res.Status
}

func statusOverHTTP(t *testing.T, s *sidecarSite, key string) int {
	c := s.raw(t, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"+gateway.HeaderKey+": "+key+"\r\n\r\n")
	defer c.Close()
	answer, _ := io.ReadAll(c)
	for strings.HasPrefix(string(answer), "HTTP/1.1 1") {
		_, rest, _ := strings.Cut(string(answer), "\r\n\r\n")
		answer = []byte(rest)
	}
	code := 0
	fmt.Sscanf(string(answer), "HTTP/1.1 %d", &code)
	return code
}

// An app that does not answer holds its key for Limits.Timeout, and until it has
// closed the connection, or for the grace.
func TestTrapSilentAppIsGivenUp(t *testing.T) {
	const timeout, grace = 10 * time.Second, 1500 * time.Millisecond
	for name, tt := range map[string]struct {
		answer, chat string
		status       int
	}{
		"nothing":         {status: http.StatusGatewayTimeout},
		"interim answers": {chat: "HTTP/1.1 102 Processing\r\n\r\n", status: http.StatusGatewayTimeout},
		"no status":       {answer: "HTTP/1.1 000 X\r\n\r\n", status: http.StatusBadGateway},
		"half a head":     {answer: "HTTP/1.1 200 OK\r\n", status: http.StatusGatewayTimeout},
		"half a body":     {answer: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe", status: http.StatusOK},
		"endless body":    {answer: "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n", chat: "data: 1\n\n", status: http.StatusOK},
	} {
		for way, ask := range map[string]status{"link": statusOverLink, "HTTP": statusOverHTTP} {
			for _, obeys := range []bool{false, true} {
				t.Run(fmt.Sprint(name, ", ", way, ", obeys ", obeys), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						app := startStubbornApp(t)
						app.answer, app.chat, app.chatter, app.obeys = tt.answer, tt.chat, time.Second, obeys
						if tt.chat == "" {
							app.chatter = 0
						}
						s := startSidecar(t, workertest.New(t, 16), app, func(cfg *worker.Config) { cfg.Timeout = timeout })
						s.AwaitServing(t, 16)
						var wg sync.WaitGroup
						wg.Go(func() {
							if got := ask(t, s, "k"); got != tt.status && (got != 0 || tt.status != http.StatusOK) { // or nothing of an answer that broke off
								t.Errorf("the client got status %d, want %d", got, tt.status)
							}
						})
						<-app.entered
						s.until(t, "k")
						wg.Wait()
						app.end()
						synctest.Wait()
						app.mu.Lock()
						first, second := app.visits[0], app.visits[1]
						app.mu.Unlock()
						end := timeout
						if tt.status == http.StatusBadGateway {
							end = 0
						}
						if !obeys {
							end += grace
						}
						if held := second.from.Sub(first.from); held < end || held > end+200*time.Millisecond {
							t.Errorf("the next request reached the app %v after the first, want %v", held, end)
						}
						if obeys && second.from.Before(first.to) {
							t.Error("the next request reached the app before it had closed the connection")
						}
						logs := s.logs.String()
						if strings.Contains(logs, "level=ERROR") == obeys {
							t.Errorf("the app obeys %v: %s", obeys, logs)
						}
						if tt.status != http.StatusBadGateway && (!strings.Contains(logs, "--timeout") || !strings.Contains(logs, "key=k") || !strings.Contains(logs, "token=")) {
							t.Errorf("what happened is not logged: %s", logs)
						}
					})
				})
			}
		}
	}
}

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
				w := workertest.New(t, 16).Start(func(cfg *worker.Config) { cfg.Timeout = timeout })
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
				if took := time.Since(begin); rec.Code != tt.status || !errors.Is(cause, worker.ErrTimeout) || took < timeout || took > timeout*11/10+time.Millisecond {
					t.Errorf("status %d, cause %v, after %v", rec.Code, cause, took)
				}
				if !deadline.Equal(begin.Add(timeout)) {
					t.Errorf("its deadline is %v after the start", deadline.Sub(begin))
				}
				if err := w.Do(t.Context(), "k", func(x worker.Execution) error {
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
	behind := workertest.Serve(t, http.HandlerFunc(app))
	for name, over := range map[string]func(w *worker.Worker) http.Handler{
		"handler": func(w *worker.Worker) http.Handler { return w.Handler(http.HandlerFunc(app)) },
		"sidecar": func(w *worker.Worker) http.Handler { return kit.Must(w.Sidecar(kit.Must(url.Parse(behind.URL)))) },
		"sidecar, net/http": func(w *worker.Worker) http.Handler {
			return kit.Must(w.Sidecar(kit.Must(url.Parse(behind.URL + "/?a=1"))))
		},
	} {
		for _, length := range []int64{100, -1} {
			t.Run(fmt.Sprint(name, ", length ", length), func(t *testing.T) {
				w := startServing(t, func(cfg *worker.Config) { cfg.Timeout, cfg.MaxWait = 200*time.Millisecond, 8*time.Second })
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
				kit.Eventually(t, "the key is held", func() bool { return errors.Is(w.TryDo(t.Context(), "k", ok), worker.ErrLocked) })
				if err := w.Do(t.Context(), "k", ok); err != nil {
					t.Error(err)
				}
				rest.Close()
				<-ended
			})
		}
	}
}
