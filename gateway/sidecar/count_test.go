package sidecar_test

import (
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/appwork"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// batched sends a request that goes to the app as a batch.
func batched(t *testing.T, s *sidecarSite, app *stubbornApp, key string) {
	go func() {
		fields := link.AppendField(nil, "Content-Type", "application/json")
		res, err := s.links.Do(t.Context(), &link.Request{Method: "POST", Target: "/", Host: "x", Key: key, Fields: fields, Body: io.NopCloser(strings.NewReader("{}")), ContentLength: 2})
		if err == nil {
			res.Body.Close()
		}
	}()
	<-app.entered
}

// TestTrapCountOfWhatIsAtTheApp: an execution is counted from before the app has anything of it until its
// key is free, and for ever if the app may still work for it then.
func TestTrapCountOfWhatIsAtTheApp(t *testing.T) {
	const events = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
	for name, tt := range map[string]struct {
		use
		at, end int64 // while the app works, and when it has ended
	}{
		"over the link":          {use{run: overLink}, 1, 0},
		"plain HTTP":             {use{run: overHTTP}, 1, 0},
		"batch":                  {use{run: batched}, 1, 0},
		"tunnel with its key":    {use{answer: toUpgraded, run: overUpgrade}, 1, 0},
		"event stream":           {use{answer: events, run: overLink}, 0, 0},
		"event stream, HTTP":     {use{answer: events, run: overHTTP}, 0, 0},
		"given up, in its grace": {givenUp["no answer"], 1, 0},
		"given up, HTTP":         {givenUp["no answer, plain HTTP"], 1, 0},
		"overdue":                {givenUp["no answer"], 1, appwork.Unproved},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var running atomic.Int64
				app := startStubbornApp(t)
				app.answer = tt.answer
				s := startSidecar(t, site.New(t, 16), app, func(cfg *worker.Config) {
					cfg.AtApp, cfg.Batch = appwork.NewRecord(&running, nil), "/batch"
				})
				s.AwaitServing(t, 16)
				if err := s.Do(t.Context(), "k", func(gateway.Execution) error { return nil }); err != nil {
					t.Fatal(err)
				}
				tt.run(t, s, app, "k")
				synctest.Wait()
				if n := running.Load(); n != tt.at {
					t.Errorf("%d are counted while the app works, want %d", n, tt.at)
				}
				if tt.end != 0 {
					time.Sleep(2 * time.Second) // of the bubble: more than the grace
				}
				app.end()
				synctest.Wait()
				if n := running.Load(); n != tt.end {
					t.Errorf("%d are counted when the app has ended, want %d", n, tt.end)
				}
			})
		})
	}
}
