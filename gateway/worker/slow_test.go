package worker_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/placement"
	"github.com/keyway-go/keyway/internal/test/site"
)

// lines is a log.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

// with returns the lines that have a text in them.
func (l *lines) with(text string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// A key that is held, or waited for, longer than Limit1500*time.MillisecondKey is logged once, and
// a worker at which no key is held looks for none. The balancer's lock is held for as long as that balances.
func TestSlowKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		w := site.New(t, 16).StartOwner(func(cfg *worker.Config) {
			cfg.SlowKey, cfg.MaxWait, cfg.Logger = 20*time.Second, time.Hour, slog.New(slog.NewTextHandler(&log, nil))
		})
		if w.LooksForSlowKeys() {
			t.Error("it looks for slow keys before any is held")
		}
		var wg sync.WaitGroup
		var token int64
		do := func(key string, d time.Duration) {
			wg.Go(func() {
				err := w.Do(t.Context(), key, func(x gateway.Execution) error {
					if key == "held" && token == 0 {
						token = x.Token()
					}
					time.Sleep(d)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		do("held", 2*time.Minute)
		do("held", time.Second)
		do(placement.Lock, 2*time.Minute)
		for range 60 {
			do("hot", time.Second)
		}
		for range 50 {
			do("quick", 200*time.Millisecond)
		}
		time.Sleep(19 * time.Second)
		if got := log.with("for long"); len(got) != 0 {
			t.Errorf("too early: %q", got)
		}
		time.Sleep(12 * time.Second)
		held := log.with("is held for long")
		if len(held) != 1 || !strings.Contains(held[0], "key=held") || !strings.Contains(held[0], fmt.Sprint("holder=", token)) || !strings.Contains(held[0], "waiting=1") || !strings.Contains(held[0], "for=2") {
			t.Errorf("held: %q", held)
		}
		wg.Wait()
		time.Sleep(time.Minute)
		if held := log.with("key=held"); len(held) > 2 {
			t.Errorf("more than once: %q", held)
		}
		if waited := log.with("wait long"); len(waited) == 0 || len(log.with("key=hot")) > 1 {
			t.Errorf("waited for: %q", waited)
		}
		if log.with("key=quick") != nil {
			t.Error("a key that nobody held or waited for long was logged")
		}
		if w.LooksForSlowKeys() {
			t.Error("it looks on though no key is held")
		}
		do("held", time.Minute)
		if !w.LooksForSlowKeys() {
			t.Error("it does not look again")
		}
		wg.Wait()
		if held := log.with("is held for long"); len(held) != 2 {
			t.Errorf("held again: %q", held)
		}
	})
}

// Nothing goes on when the worker is closed, though a key is held.
func TestSlowKeysEndWithTheWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		w := site.New(t, 16).StartOwner(func(cfg *worker.Config) { cfg.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		_ = w.Do(t.Context(), "k", func(gateway.Execution) error {
			w.Close()
			time.Sleep(time.Minute)
			return nil
		})
		if got := log.with("for long"); len(got) != 0 {
			t.Errorf("%q", got)
		}
	})
}
