package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/metrictest"
	"github.com/keyway-go/keyway/internal/test/site"
)

// expectMetrics fails the test unless the worker's metrics have these values now.
func expectMetrics(t *testing.T, w *site.Worker, want metrictest.Values) {
	t.Helper()
	now := metrictest.Gather(t, w)
	for name, value := range want {
		if now[name] != value {
			t.Errorf("%s is %v, want %v", name, now[name], value)
		}
	}
}

// occupy runs an execution of key until release is called, which waits for its end.
func occupy(t *testing.T, w *site.Worker, key string) (release func()) {
	t.Helper()
	begun, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		if err := w.Do(t.Context(), key, func(gateway.Execution) error { close(begun); <-end; return nil }); err != nil {
			t.Error(err)
		}
	}()
	<-begun
	return func() { close(end); <-ended }
}

func TestMetricsOfExecutions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).Start()
		w.AwaitServing(t, 16)
		release := occupy(t, w, "k")
		waited := make(chan error)
		go func() { waited <- w.Do(t.Context(), "k", ok) }()
		synctest.Wait()
		expectMetrics(t, w, metrictest.Values{
			"keyway_worker_executions_total":   1,
			"keyway_worker_busy_keys":          1,
			`keyway_worker_waiting{for="key"}`: 1,
			"keyway_worker_wait_seconds_count": 0,
		})
		time.Sleep(3 * time.Second)
		release()
		if err := <-waited; err != nil {
			t.Fatal(err)
		}
		expectMetrics(t, w, metrictest.Values{
			"keyway_worker_executions_total":   2,
			"keyway_worker_busy_keys":          0,
			`keyway_worker_waiting{for="key"}`: 0,
			"keyway_worker_wait_seconds_count": 1,
			"keyway_worker_wait_seconds_sum":   3,
		})
		for range 640 {
			if err := w.Do(t.Context(), "k", ok); err != nil {
				t.Fatal(err)
			}
		}
		if n := metrictest.Gather(t, w)[`keyway_worker_run_seconds_count{of="call"}`]; n != 5 && n != 6 {
			t.Errorf("%v of 642 calls were timed, want 1 in 127", n)
		}
		expectMetrics(t, w, metrictest.Values{
			"keyway_worker_executions_total":   642,
			"keyway_worker_wait_seconds_count": 1,
		})
	})
}

func TestMetricsOfRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).Start(func(cfg *worker.Config) { cfg.Timeout = 10 * time.Second })
		w.AwaitServing(t, 16)
		h := w.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				<-r.Context().Done()
				return
			}
			time.Sleep(2 * time.Second)
		}))
		site.Ask(t, h, "/", "k")
		expectMetrics(t, w, metrictest.Values{
			`keyway_worker_run_seconds_count{of="request"}`: 1,
			`keyway_worker_run_seconds_sum{of="request"}`:   2,
		})
		site.Ask(t, h, "/slow", "k")
		expectMetrics(t, w, metrictest.Values{
			`keyway_worker_executions_cancelled_total{reason="timeout"}`: 1,
			`keyway_worker_problems_total{kind="timed-out"}`:             1,
		})
	})
}

// What is refused is counted once, by its kind.
func TestMetricsOfProblems(t *testing.T) {
	for name, tt := range map[string]struct {
		ask  func(t *testing.T, w *site.Worker)
		want string
		n    float64 // the one that waits already is refused too, or not
	}{
		"no key": {func(t *testing.T, w *site.Worker) { _ = w.Do(t.Context(), "", ok) }, "no-key", 1},
		"request without a key": {func(t *testing.T, w *site.Worker) {
			w.Handler(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
		}, "no-key", 1},
		"bad form": {func(t *testing.T, w *site.Worker) {
			w.Handler(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "TRACE", "/", nil))
		}, "trace", 1},
		"held": {func(t *testing.T, w *site.Worker) { _ = w.TryDo(t.Context(), "held", ok) }, "key-held", 1},
		"full": {func(t *testing.T, w *site.Worker) { _ = w.Do(t.Context(), "full", ok) }, "too-many-wait", 1},
		"request": {func(t *testing.T, w *site.Worker) {
			site.Ask(t, w.Handler(http.NotFoundHandler()), "/", "full")
		}, "too-many-wait", 1},
		"too long": {func(t *testing.T, w *site.Worker) { _ = w.Do(t.Context(), "held", ok) }, "key-waited", 2},
		"left": {func(t *testing.T, w *site.Worker) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_ = w.Do(ctx, "held", ok)
		}, "left", 1},
		"batch": {func(t *testing.T, w *site.Worker) {
			b := kit.Must(worker.NewBatcher(w.Worker, worker.BatchConfig{}, func(gateway.Execution, []*worker.Item[int, int]) error { return nil }))
			_, _ = b.Do(t.Context(), "full", 1)
		}, "too-many-wait", 1},
		"another member": {func(t *testing.T, w *site.Worker) {
			c := newCaller(t, w)
			if status, _, err := c.call(t.Context(), holds.Acquire, "held", holds.Request{ID: holds.NewID(), Try: true}.Append(nil)); status != http.StatusConflict {
				t.Error(status, err)
			}
		}, "key-held", 1},
		"closed": {func(t *testing.T, w *site.Worker) {
			w.Close()
			_ = w.TryDo(t.Context(), "k", ok)
		}, "unowned", 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := site.New(t, 16).Start(func(cfg *worker.Config) { cfg.QueuePerKey, cfg.MaxWait = 1, 5*time.Second })
				w.AwaitServing(t, 16)
				defer occupy(t, w, "held")()
				defer occupy(t, w, "full")()
				var queue sync.WaitGroup
				queue.Go(func() { _ = w.Do(t.Context(), "full", ok) })
				synctest.Wait()
				before := metrictest.Gather(t, w)
				tt.ask(t, w)
				synctest.Wait() // the one that waits may be refused at the same instant
				changed := metrictest.Gather(t, w).Changed(before)
				total := 0.0
				for name, n := range changed {
					if strings.HasPrefix(name, "keyway_worker_problems_total") {
						total += n
					}
				}
				if n := changed[fmt.Sprintf("keyway_worker_problems_total{kind=%q}", tt.want)]; n != tt.n || total != tt.n {
					t.Errorf("%v", changed)
				}
			})
		})
	}
}

func TestMetricsOfOwnership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		a := c.Start()
		call := make(chan error)
		go func() { call <- a.Do(t.Context(), "k", ok) }()
		synctest.Wait()
		expectMetrics(t, a, metrictest.Values{`keyway_worker_waiting{for="partition"}`: 1, "keyway_worker_ready": 0})
		<-call
		a.AwaitServing(t, 16)
		expectMetrics(t, a, metrictest.Values{
			`keyway_worker_waiting{for="partition"}`:    0,
			`keyway_worker_partitions{state="serving"}`: 16,
			"keyway_worker_ready":                       1,
		})
		if slack := metrictest.Gather(t, a)["keyway_worker_session_slack_seconds"]; slack <= 5 || slack > 7 {
			t.Errorf("the session has %v s to go, want 5 to 7 of a TTL of 10", slack)
		}
		var keys []string // one of each partition
		for i := range 1000 {
			key := fmt.Sprint(i)
			if p := a.Ring.Partition(key); len(keys) == p {
				keys = append(keys, key)
			}
		}
		var release []func()
		for _, key := range keys {
			release = append(release, occupy(t, a, key))
		}
		b := c.Start()
		kit.Eventually(t, "b is given partitions", func() bool {
			return metrictest.Gather(t, b)[`keyway_worker_partitions{state="arriving"}`] > 0
		})
		if departing := metrictest.Gather(t, a)[`keyway_worker_partitions{state="departing"}`]; departing == 0 {
			t.Error("no partition is departing")
		}
		kit.Eventually(t, "b serves its share", func() bool { return b.Ready() == nil && b.Serving() > 0 })
		time.Sleep(3 * time.Second)
		now, share := metrictest.Gather(t, b), 0.0
		for _, key := range keys {
			if w, _ := b.Member.View().Owner(b.Ring.Partition(key)); w.Name == b.Member.Self().Name {
				share++
			}
		}
		if n := now["keyway_worker_residue_keys"]; n != share || share == 0 || now["keyway_worker_residue_oldest_seconds"] < 3 {
			t.Errorf("%v keys are residue, the oldest for %v s; want %v, for 3 s at least", n, now["keyway_worker_residue_oldest_seconds"], share)
		}
		expectMetrics(t, b, metrictest.Values{
			`keyway_worker_moves_total{direction="taken",reason="join"}`:   share,
			`keyway_worker_move_duration_seconds_count{direction="taken"}`: share,
		})
		expectMetrics(t, a, metrictest.Values{
			`keyway_worker_moves_total{direction="given",reason="join"}`:   share,
			`keyway_worker_move_duration_seconds_count{direction="given"}`: share,
		})
		for _, end := range release {
			end()
		}
		time.Sleep(2 * time.Second)
		expectMetrics(t, b, metrictest.Values{"keyway_worker_residue_keys": 0, "keyway_worker_residue_oldest_seconds": 0, `keyway_worker_partitions{state="arriving"}`: 0})
		expectMetrics(t, a, metrictest.Values{`keyway_worker_partitions{state="departing"}`: 0})
		a.Close()
		expectMetrics(t, a, metrictest.Values{"keyway_worker_session_slack_seconds": 0, "keyway_worker_ready": 0})
	})
}

func TestMetricsOfLostSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		w := c.StartOwner()
		ended := make(chan error)
		go func() {
			ended <- w.Do(t.Context(), "k", func(x gateway.Execution) error {
				<-x.Context().Done()
				return context.Cause(x.Context())
			})
		}()
		synctest.Wait()
		if err := c.Store.Release(t.Context(), w.Incarnation()); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, gateway.ErrOwnershipLost) {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		expectMetrics(t, w, metrictest.Values{
			"keyway_worker_sessions_lost_total":                                 1,
			`keyway_worker_executions_cancelled_total{reason="ownership-lost"}`: 1,
		})
	})
}

// brokenRenewals fails renewals while it is told to.
type brokenRenewals struct {
	worker.Store
	broken atomic.Bool
}

func (s *brokenRenewals) Renew(ctx context.Context, generation, incarnation string, ttl time.Duration) (records.Snapshot, error) {
	if s.broken.Load() {
		time.Sleep(time.Second)
		return records.Snapshot{}, errors.New("broken")
	}
	return s.Store.Renew(ctx, generation, incarnation, ttl)
}

func TestMetricsOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		store := &brokenRenewals{Store: c.Store}
		w := c.StartOwner(func(cfg *worker.Config) { cfg.Store = store })
		expectMetrics(t, w, metrictest.Values{
			`keyway_worker_store_call_duration_seconds_count{call="generation"}`: 1,
			`keyway_worker_store_call_duration_seconds_count{call="register"}`:   1,
			`keyway_worker_store_errors_total{call="renew"}`:                     0,
		})
		if now := metrictest.Gather(t, w); now[`keyway_worker_store_call_duration_seconds_count{call="apply"}`] == 0 || now[`keyway_worker_store_call_duration_seconds_count{call="observe"}`] == 0 {
			t.Errorf("%v", now)
		}
		store.broken.Store(true)
		time.Sleep(4 * time.Second)
		store.broken.Store(false)
		time.Sleep(2 * time.Second)
		now := metrictest.Gather(t, w)
		failed := now[`keyway_worker_store_errors_total{call="renew"}`]
		if sum := now[`keyway_worker_store_call_duration_seconds_sum{call="renew"}`]; failed == 0 || sum < failed {
			t.Errorf("%v renewals have failed, and all took %v s", failed, sum)
		}
		if err := w.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		expectMetrics(t, w, metrictest.Values{`keyway_worker_store_call_duration_seconds_count{call="release"}`: 1})
	})
}

func TestMetricsOfBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).Start()
		w.AwaitServing(t, 16)
		b := newBatches(t, w, worker.BatchConfig{})
		release := occupy(t, w, "k")
		var calls sync.WaitGroup
		for range 5 {
			calls.Go(func() {
				if _, err := b.Do(t.Context(), "k", "x"); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		time.Sleep(2 * time.Second)
		release()
		calls.Wait()
		expectMetrics(t, w, metrictest.Values{
			"keyway_worker_batch_items_count":  1,
			"keyway_worker_batch_items_sum":    5,
			"keyway_worker_executions_total":   2,
			"keyway_worker_wait_seconds_count": 5,
			"keyway_worker_wait_seconds_sum":   10,
		})
	})
}

func TestMetricsOfSharedAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).Start()
		w.AwaitServing(t, 16)
		var calls sync.WaitGroup
		for range 3 {
			calls.Go(func() {
				_, _, err := worker.Share(t.Context(), w.Worker, "k", "read", func(gateway.Execution) (int, error) {
					time.Sleep(time.Second)
					return 1, nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		if n := metrictest.Gather(t, w)["keyway_worker_shared_answers_total"]; n < 2 {
			t.Errorf("%v answers are shared, want 2 or 3", n)
		}
	})
	sharing(t, func(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, "answer") }, func(c *crowdOf) {
		release := occupy(c.t, c.w, "k")
		for range 3 {
			c.send(c.t.Context(), shared, "GET", "/", "")
		}
		release()
		c.wg.Wait()
		expectMetrics(c.t, c.w, metrictest.Values{"keyway_worker_shared_answers_total": 2})
	})
}

func TestMetricsOfHoldsAndApps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).Start()
		w.AwaitServing(t, 16)
		if _, there := metrictest.Gather(t, w)["keyway_worker_app_up"]; there {
			t.Error("there is no app, and a metric says whether it is up")
		}
		c := newCaller(t, w)
		c.acquire("k", holds.NewID())
		leaving, leave := context.WithCancel(t.Context())
		left := make(chan struct{})
		go func() {
			defer close(left)
			_, _, _ = c.call(leaving, holds.Acquire, "k", holds.Request{ID: holds.NewID()}.Append(nil))
		}()
		synctest.Wait()
		if s := w.Status(); s.Locks != 1 || s.Holds != 2 {
			t.Errorf("%d locks, %d with those who wait; want 1 and 2", s.Locks, s.Holds)
		}
		expectMetrics(t, w, metrictest.Values{"keyway_worker_locks": 1, "keyway_worker_locks_waiting": 1})
		leave()
		<-left
		synctest.Wait()
		expectMetrics(t, w, metrictest.Values{"keyway_worker_locks": 1, "keyway_worker_locks_waiting": 0, `keyway_worker_lock_events_total{event="granted"}`: 1, "keyway_worker_busy_keys": 1})
		app := watchApp(w)
		time.Sleep(time.Second)
		expectMetrics(t, w, metrictest.Values{"keyway_worker_app_up": 1})
		app(fmt.Errorf("%w: connection refused", worker.ErrAppDown))
		time.Sleep(3 * time.Second)
		expectMetrics(t, w, metrictest.Values{"keyway_worker_app_up": 0})
	})
}

// Metrics can be collected at any time, and keys do not become labels.
func TestMetricsWhileWorking(t *testing.T) {
	w := site.New(t, 16).StartReady()
	h := w.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	work := func(i int) {
		_ = w.Do(t.Context(), fmt.Sprint(i%100), ok)
		r := httptest.NewRequestWithContext(t.Context(), "GET", fmt.Sprintf("/%d", i), nil)
		r.Header.Set(gateway.HeaderKey, fmt.Sprint(i%100))
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	for i := range 64 * 16 {
		work(i)
	}
	before := metrictest.Gather(t, w)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			for i := range 100 {
				work(i)
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	for running := true; running; {
		metrictest.Gather(t, w)
		select {
		case <-done:
			running = false
		default:
		}
	}
	after := metrictest.Gather(t, w)
	if n := after.Changed(before)["keyway_worker_executions_total"]; n != 10_000 || len(after) != len(before) {
		t.Errorf("%v executions, want 10000; %d series, and before %d", n, len(after), len(before))
	}
}

func BenchmarkCollect(b *testing.B) {
	w := site.New(b, 4096).StartReady()
	registry := prometheus.NewRegistry()
	registry.MustRegister(w)
	for b.Loop() {
		if _, err := registry.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}
