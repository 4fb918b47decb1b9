package worker_test

import (
	"log/slog"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/metrictest"
	"github.com/keyway-go/keyway/internal/test/site"
)

// What becomes of locks is logged, and how long they were waited for is counted.
func TestLocksAreToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log kit.Buffer
		w := site.New(t, 16).Start(func(cfg *worker.Config) {
			cfg.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		})
		w.AwaitServing(t, 16)
		c := newCaller(t, w)
		first := holds.Request{ID: holds.NewID(), Lease: time.Second, Label: "cron-7"}
		c.acquireAs("k", first)
		c.renew(first.ID)
		second := holds.Request{ID: holds.NewID(), Label: "cron-8"}
		c.acquireAs("k", second) // when the first has expired
		c.release(second.ID)
		for _, want := range []string{
			`level=DEBUG msg="a key is held for another member" key=k token=\d+ label=cron-7`,
			`level=DEBUG msg="a key goes on being held for another member" key=k token=\d+ label=cron-7`,
			`level=WARN msg="a key was held for another member that has not been heard of [^"]*" key=k token=\d+ label=cron-7`,
			`level=DEBUG msg="a key is held for another member no more: it was released" key=k token=\d+ label=cron-8`,
		} {
			if !regexp.MustCompile(want).MatchString(log.String()) {
				t.Errorf("the log lacks %s:\n%s", want, &log)
			}
		}
		if waits := metrictest.Gather(t, w); waits["keyway_worker_lock_wait_seconds_count"] != 2 || waits["keyway_worker_lock_wait_seconds_sum"] < 1 {
			t.Errorf("waits: %v", waits)
		}
	})
}
