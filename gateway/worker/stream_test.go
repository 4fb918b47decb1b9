package worker_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/policy"
	"github.com/keyway-go/keyway/internal/test/site"
)

// eventStream answers with the head of an event stream and waits for its end.
func eventStream(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Content-Type", "text/event-stream")
	rw.WriteHeader(http.StatusOK)
	<-r.Context().Done()
}

// A stream whose route serializes holds its key for as long as an execution may.
func TestSerializedStreamsHoldTheirKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 1)
		w := c.StartOwner(func(cfg *worker.Config) { cfg.Timeout = 20 * time.Second })
		for _, tt := range []struct {
			mode  policy.Mode
			holds bool
		}{
			{policy.Auto, false}, {policy.Serialize, true},
		} {
			began := time.Now()
			done := make(chan time.Duration, 1)
			go func() {
				askBy(t, w.Handler(http.HandlerFunc(eventStream)), "k", policy.Policy{Route: "r", Mode: tt.mode})
				done <- time.Since(began)
			}()
			synctest.Wait()
			if err := w.TryDo(t.Context(), "k", ok); (err != nil) != tt.holds {
				t.Errorf("%v: %v", tt.mode, err)
			}
			if tt.holds {
				if took := <-done; took < 20*time.Second || took > 21*time.Second {
					t.Errorf("%v: the execution ended after %v", tt.mode, took)
				}
				continue
			}
			time.Sleep(time.Hour)
			select {
			case took := <-done:
				t.Errorf("%v: the stream ended after %v", tt.mode, took)
			default:
			}
			moved := make(chan error, 1)
			go func() { moved <- c.Start().Drain(t.Context()) }() // a worker comes and goes
			if err := <-moved; err != nil {
				t.Error(err)
			}
			w.AwaitServing(t, 1)
		}
		_ = w.Close() // ends what goes on
	})
}

// What a handler does once its stream has let the key go is no part of the execution:
// it waits for the key like everybody else, and has no baggage of it.
func TestAStreamIsNoExecution(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 1).StartOwner()
		h := w.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if err := w.TryDo(r.Context(), "k", ok); err != nil {
				t.Errorf("within the execution: %v", err)
			}
			rw.Header().Set("Content-Type", "text/event-stream")
			rw.WriteHeader(http.StatusOK)
			held := make(chan struct{})
			go w.Do(t.Context(), "k", func(gateway.Execution) error {
				close(held)
				time.Sleep(time.Second)
				return nil
			})
			<-held
			if err := w.TryDo(r.Context(), "k", ok); err == nil {
				t.Error("within the stream a call runs beside the execution that holds the key")
			}
			began := time.Now()
			if err := w.Do(r.Context(), "k", ok); err != nil || time.Since(began) != time.Second {
				t.Errorf("within the stream: %v after %v", err, time.Since(began))
			}
			if got := worker.Baggage(r.Context(), nil); len(got) > 0 && got[0] != "keyway-held=" {
				t.Errorf("a stream says that it holds %q", got)
			}
		}))
		askBy(t, h, "k", policy.Policy{})
	})
}
