package worker_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/policy"
	"github.com/keyway-go/keyway/internal/status"
	"github.com/keyway-go/keyway/internal/test/metrictest"
	"github.com/keyway-go/keyway/internal/test/site"
)

// loadOf returns the work of the partition of key.
func loadOf(w *site.Worker, key string) status.Work {
	for _, p := range w.Loads().Partitions {
		if p.Partition == w.Ring.Partition(key) {
			return p.Work
		}
	}
	return status.Work{}
}

// about fails the test unless got is want, give or take a part of it.
func about(t *testing.T, what string, got, want, part float64) {
	t.Helper()
	if math.Abs(got-want) > part*want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// keysApart returns keys of n partitions.
func keysApart(w *site.Worker, n int) (keys []string) {
	seen := make(map[int]bool)
	for i := 0; len(keys) < n; i++ {
		key := fmt.Sprint("key-", i)
		if p := w.Ring.Partition(key); !seen[p] {
			seen[p] = true
			keys = append(keys, key)
		}
	}
	return keys
}

// call calls for key n times, every 10 ms, for that long each.
func call(t *testing.T, w *site.Worker, key string, n int, took time.Duration) {
	for range n {
		time.Sleep(10*time.Millisecond - took)
		if err := w.Do(t.Context(), key, func(gateway.Execution) error { time.Sleep(took); return nil }); err != nil {
			t.Error(err)
		}
	}
}

// Averages are right from the first second on, follow a step within their time constant, and decay.
func TestLoadAverages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 1).Start()
		w.AwaitServing(t, 1)
		expect := func(when string, rate, part float64) {
			t.Helper()
			got := loadOf(w, "k")
			about(t, when+": executions", got.Executions, rate, part)
			about(t, when+": running", got.Running, rate*0.005, part)
			about(t, when+": load", got.Load, rate*0.005, part)
			about(t, when+": the worker's load", w.Loads().Total.Load, got.Load, 1e-6)
		}
		time.Sleep(time.Minute)
		if l := w.Loads(); len(l.Partitions) != 0 || l.Total != (status.Work{}) {
			t.Errorf("%+v of nothing", l)
		}
		for range 120 {
			call(t, w, "k", 100, 5*time.Millisecond)
			w.Loads()
		}
		expect("after 2 min", 100, 0.01)
		for range 15 {
			time.Sleep(time.Second)
			w.Loads()
		}
		expect("15 s later", 100/math.E, 0.01)
		time.Sleep(10 * time.Minute)
		if got := loadOf(w, "k"); got != (status.Work{}) {
			t.Errorf("%+v ten minutes later", got)
		}
	})
}

// Without questions for long, the answer is the average since the last one.
func TestLoadAfterASilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 1).Start()
		w.AwaitServing(t, 1)
		call(t, w, "k", 6000, 5*time.Millisecond)
		about(t, "the first answer", loadOf(w, "k").Running, 0.5, 0.02)
		call(t, w, "k", 6000, 5*time.Millisecond)
		time.Sleep(3 * time.Minute)
		about(t, "an answer after 4 min", loadOf(w, "k").Executions, 25, 0.01)
	})
}

// Whoever asks within a second gets the same answer.
func TestLoadIsMadeOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 1).Start()
		w.AwaitServing(t, 1)
		call(t, w, "k", 500, time.Millisecond)
		first := w.Loads()
		call(t, w, "k", 99, time.Millisecond)
		var asked sync.WaitGroup
		for range 4 {
			asked.Go(func() {
				if l := w.Loads(); !reflect.DeepEqual(l, first) || &l.Partitions[0] != &first.Partitions[0] {
					t.Errorf("%+v within a second of %+v, or made again", l, first)
				}
			})
		}
		asked.Wait()
		time.Sleep(10 * time.Millisecond)
		if l := w.Loads(); reflect.DeepEqual(l, first) {
			t.Error("the same a second later")
		}
	})
}

// Of calls that are sampled each partition has its own time, and the worker's mean until it has samples.
func TestLoadOfSampledCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).Start()
		w.AwaitServing(t, 16)
		keys := keysApart(w, 3)
		var calls sync.WaitGroup
		for i, took := range []time.Duration{8 * time.Millisecond, time.Millisecond} {
			calls.Go(func() { call(t, w, keys[i], 12000, took) })
		}
		calls.Wait()
		about(t, "long calls", loadOf(w, keys[0]).Running, 0.8, 0.1)
		about(t, "short calls", loadOf(w, keys[1]).Running, 0.1, 0.3)
		call(t, w, keys[2], 100, 0)
		few := loadOf(w, keys[2])
		about(t, "the time of calls with a sample at most", few.Running/few.Executions, 0.0045, 0.25)
	})
}

// All requests are timed. What waits for a hot key queues.
func TestLoadOfRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).Start()
		w.AwaitServing(t, 16)
		h := w.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(100 * time.Millisecond) }))
		keys := keysApart(w, 2)
		time.Sleep(time.Minute)
		w.Loads()
		for second := range 60 {
			var requests sync.WaitGroup
			for range 4 {
				requests.Go(func() { site.Ask(t, h, "/", keys[0]) })
			}
			requests.Go(func() { site.Ask(t, h, "/", keys[1]) })
			requests.Go(func() { askBy(t, h, "", policy.Policy{Route: "r", Mode: policy.Unkeyed}) })
			requests.Wait()
			time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
			if second%3 == 0 {
				w.Loads()
			}
		}
		l := w.Loads()
		if len(l.Partitions) != 2 || l.Partitions[0].Partition != w.Ring.Partition(keys[0]) {
			t.Errorf("%+v, want two partitions, the hot one first", l.Partitions)
		}
		hot, cold := loadOf(w, keys[0]), loadOf(w, keys[1])
		about(t, "hot executions", hot.Executions, 4, 0.05)
		about(t, "hot running", hot.Running, 0.4, 0.05)
		about(t, "hot queueing", hot.Queueing, 0.6, 0.05)
		about(t, "running with a cold key", cold.Running, 0.1, 0.05)
		about(t, "running without a key", l.Unkeyed.Running, 0.1, 0.05)
		about(t, "running in all", l.Total.Running, 0.6, 0.05)
		if cold.Queueing != 0 {
			t.Errorf("%v wait for a cold key", cold.Queueing)
		}
	})
}

// Keys that other members hold count as executions, and not as time in which something runs here.
func TestLoadOfHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 1).Start()
		w.AwaitServing(t, 1)
		call(t, w, "k", 1000, 9*time.Millisecond) // so that calls have a mean
		for range 2 {
			time.Sleep(10 * time.Minute)
			w.Loads()
		}
		c := newCaller(t, w)
		for range 100 {
			id := holds.NewID()
			c.acquire("k", id)
			time.Sleep(time.Second)
			c.release(id)
		}
		got := loadOf(w, "k")
		about(t, "executions", got.Executions, 1, 0.05)
		about(t, "load", got.Load, 15e-6, 0.1)
		if got.Running > 0.001 {
			t.Errorf("%v run", got.Running)
		}
	})
}

// A partition that was given away begins anew when it comes back, at its full rate.
func TestLoadOfAPartitionThatComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 1)
		a := c.StartOwner()
		call(t, a, "k", 6000, 5*time.Millisecond)
		about(t, "before", loadOf(a, "k").Executions, 100, 0.02)
		b := c.Start()
		leave := func(w, other *site.Worker) {
			for !other.IsActive() {
				time.Sleep(100 * time.Millisecond)
			}
			if err := w.LeaveRing(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		h := a.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Second) }))
		site.Ask(t, h, "/", "k")
		call(t, a, "k", 100, 5*time.Millisecond) // what nobody asks for any more
		leave(a, b)
		b.AwaitServing(t, 1)
		time.Sleep(time.Second)
		if got := loadOf(a, "k"); got != (status.Work{}) {
			t.Errorf("%+v of a partition that was given away", got)
		}
		call(t, b, "k", 1000, 5*time.Millisecond)
		if err := a.JoinRing(); err != nil {
			t.Fatal(err)
		}
		leave(b, a)
		a.AwaitServing(t, 1)
		call(t, a, "k", 50, 5*time.Millisecond)
		if got := loadOf(a, "k"); got != (status.Work{}) {
			t.Errorf("%+v after half a second", got)
		}
		call(t, a, "k", 150, 5*time.Millisecond)
		back := loadOf(a, "k")
		about(t, "executions 2 s after it has come back", back.Executions, 100, 0.02)
		about(t, "running 2 s after it has come back", back.Running, 0.5, 0.02)
	})
}

// The busiest partitions are listed, and the others as one.
func TestLoadsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions = 600
		w := site.New(t, partitions).Start(func(cfg *worker.Config) { cfg.Weight = 2.5 })
		w.AwaitServing(t, partitions)
		h := w.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Millisecond) }))
		for i, key := range keysApart(w, partitions) {
			for range 1 + i%2 {
				site.Ask(t, h, "/", key)
			}
		}
		time.Sleep(time.Second)
		l := w.Loads()
		if l.Weight != 2.5 || len(l.Partitions) != status.MaxLoadRows || l.Others != partitions-status.MaxLoadRows {
			t.Fatalf("weight %v, %d partitions and %d others", l.Weight, len(l.Partitions), l.Others)
		}
		sum := l.Rest
		for i, p := range l.Partitions {
			if sum.Add(p.Work); i > 0 && p.Load > l.Partitions[i-1].Load {
				t.Errorf("partition %d is busier than the one before it", p.Partition)
			}
		}
		about(t, "executions in all", sum.Executions, l.Total.Executions, 0.01)
	})
	l := status.Loads{}
	for range status.MaxLoadRows {
		busy := status.Work{Executions: 1234567.8912, Running: 12345.678912, Queueing: 123456.789123, Load: 12345.678912}
		l.Partitions = append(l.Partitions, status.PartitionLoad{Partition: 1 << 16, Work: busy.Round()})
	}
	if text, err := json.Marshal(l); err != nil || len(text) > 64<<10 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

func TestMetricsOfLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).Start()
		w.AwaitServing(t, 16)
		h := w.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Second) }))
		keys := keysApart(w, 2)
		for _, key := range []string{keys[0], keys[0], keys[1]} {
			site.Ask(t, h, "/", key)
		}
		now := metrictest.Gather(t, w)
		about(t, "the busiest one's part", now["keyway_worker_load_busiest_partition"]/now["keyway_worker_load"], 2.0/3, 0.01)
		about(t, "the worker's load", now["keyway_worker_load"], 1, 0.1)
	})
}
