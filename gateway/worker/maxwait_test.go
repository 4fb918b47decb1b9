package worker_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/ring"
)

// Calls and requests wait for a key for MaxWait and no longer. A request is then
// answered so that its client reads it, and no router has it wait again.
func TestMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).StartOwner(func(cfg *worker.Config) { cfg.MaxWait = 5 * time.Second })
		_ = w.Do(t.Context(), "k", func(gateway.Execution) error {
			began := time.Now()
			err := w.Do(t.Context(), "k", ok)
			if took := time.Since(began); !errors.Is(err, gateway.ErrWaited) || errors.Is(err, gateway.ErrBusy) || took != 5*time.Second || !strings.Contains(err.Error(), `key "k" was not free within 5s`) {
				t.Errorf("a call: %v after %v", err, took)
			}
			began = time.Now()
			answer := ask(t, w, "k")
			if took := time.Since(began); answer.Code != http.StatusServiceUnavailable || answer.Header().Get("Retry-After") == "" || answer.Header().Get("Keyway-Refused") != "" || took != 5*time.Second {
				t.Errorf("a request: %d, %v after %v", answer.Code, answer.Header(), took)
			}
			return nil
		})
		if err := w.Do(t.Context(), "k", ok); err != nil {
			t.Error(err)
		}
	})
}

// The wait for a partition and then for a key of it, which may begin anew when the
// partition moves, takes MaxWait together.
func TestMaxWaitBoundsAllWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		store := &site.CutStore{Store: c.Store}
		store.Set(true)
		w := c.Start(func(cfg *worker.Config) { cfg.Store, cfg.MaxWait = store, time.Minute })
		_ = w.Member.Announce(func(self *ring.Member) { self.State = ring.StateActive })
		began := time.Now()
		done := make(chan error, 2)
		for range 2 {
			go func() {
				done <- w.Do(t.Context(), "k", func(gateway.Execution) error { time.Sleep(10 * time.Minute); return nil })
			}()
		}
		time.Sleep(40 * time.Second)
		store.Set(false)
		if err := <-done; !errors.Is(err, gateway.ErrWaited) || time.Since(began) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
