package sidecar_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway/sidecar"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// Requests for which the app has no connection left wait, and fail with 503.
func TestAppConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		logs := new(kit.Buffer)
		w := site.New(t, 1).StartReady(func(cfg *worker.Config) {
			cfg.AppConnections, cfg.Keys, cfg.Logger = 1, kit.KeySources(t, "header:X-Key"), slog.New(slog.NewTextHandler(logs, nil))
		})
		h := kit.Must(sidecar.Over(w.Worker, func(context.Context) (net.Conn, error) {
			near, far := net.Pipe()
			go func() {
				http.ReadRequest(bufio.NewReader(far))
				<-release
				io.WriteString(far, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 6\r\n\r\nserved")
				far.Close()
			}()
			return near, nil
		}))
		send := func(key string) *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
			r.Header.Set("X-Key", key)
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, r)
			return rec
		}
		var running sync.WaitGroup
		for i := range 4 { // that do not come over the link
			running.Go(func() {
				if rec := send(fmt.Sprint(i)); rec.Body.String() != "served" {
					t.Errorf("%d %s", rec.Code, rec.Body)
				}
			})
		}
		synctest.Wait()
		start := time.Now()
		if rec := send("another"); rec.Code != http.StatusServiceUnavailable || rec.Header().Get("Retry-After") == "" || time.Since(start) != 5*time.Second {
			t.Errorf("after %v: %d %v %s", time.Since(start), rec.Code, rec.Header(), rec.Body)
		}
		if !strings.Contains(logs.String(), "requests wait for a connection") || !strings.Contains(logs.String(), "connections=4") {
			t.Errorf("log: %s", logs)
		}
		close(release)
		running.Wait()
	})
}

// So do those that come over the link, within a bound of their own.
func TestAppConnectionsForLinksAreBounded(t *testing.T) {
	entered, release := make(chan struct{}, 2), make(chan struct{})
	app := site.Serve(t, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		entered <- struct{}{}
		<-release
		io.WriteString(rw, "served")
	}))
	logs := new(kit.Buffer)
	s, _ := site.InFrontOf(t, app.URL, func(cfg *worker.Config) {
		cfg.AppConnections, cfg.Logger = 1, slog.New(slog.NewTextHandler(logs, nil))
	})
	var running sync.WaitGroup
	for i := range 2 {
		running.Go(func() {
			if res, body := kit.Fetch(t, s.URL, "X-Key", fmt.Sprint(i)); body != "served" {
				t.Errorf("%d %s", res.StatusCode, body)
			}
		})
	}
	<-entered
	kit.Eventually(t, "one waits", func() bool { return strings.Contains(logs.String(), "connections=1") })
	if len(entered) > 0 {
		t.Error("it does not wait")
	}
	close(release)
	running.Wait()
}
