package worker_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/policy"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/status"
	"github.com/keyway-go/keyway/internal/suspects"
	"github.com/keyway-go/keyway/internal/test/site"
)

// accused is a worker, and a store with suspects.
type accused struct {
	*site.Worker
	t     *testing.T
	store worker.Store
}

func newAccused(t *testing.T) *accused {
	c := site.New(t, 16)
	a := &accused{c.Start(), t, c.Store}
	a.AwaitServing(t, 16)
	return a
}

func (a *accused) book() string {
	a.t.Helper()
	s, err := a.store.Observe(a.t.Context(), "", a.Incarnation(), 0, nil)
	if errors.Is(err, records.ErrGeneration) {
		generation, failed := a.store.Generation(a.t.Context(), true)
		if failed != nil {
			a.t.Fatal(failed)
		}
		s, err = a.store.Observe(a.t.Context(), generation, a.Incarnation(), 0, nil)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return s.Notes[records.Suspects]
}

// write replaces the book in the store, and waits until the worker has seen that.
func (a *accused) write(text string) {
	a.t.Helper()
	if now, err := a.store.Replace(a.t.Context(), records.Suspects, a.book(), text); err != nil || now != text {
		a.t.Fatalf("wrote %q: %q, %v", text, now, err)
	}
	time.Sleep(time.Second)
}

// died says that the keys were under way at workers that have died.
func (a *accused) died(workers string, keys ...string) {
	a.t.Helper()
	var b suspects.Book
	for w := range strings.SplitSeq(workers, ",") {
		var hashes []uint64
		for _, key := range keys {
			hashes = append(hashes, suspects.Hash(key))
		}
		b = b.Accuse(w, time.Now(), hashes)
	}
	a.write(b.String())
}

func (a *accused) do(key string) error {
	return a.Do(a.t.Context(), key, func(gateway.Execution) error { return nil })
}

func TestSuspectIsCleared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccused(t)
		a.died("gone", "k", "l")
		var both sync.WaitGroup
		for range 3 {
			both.Go(func() {
				if err := a.do("k"); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		time.Sleep(time.Second)
		if b, err := suspects.Parse(a.book()); err != nil || len(b.Deaths) != 1 || len(b.Deaths[0].Keys) != 1 || b.Deaths[0].Keys[0] != suspects.Hash("l") {
			t.Errorf("%v: the store has %+v, want l alone", err, b)
		}
		if err := a.do("l"); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if text := a.book(); text != "" {
			t.Errorf("the store has %q", text)
		}
	})
}

// An event stream frees its key when it begins, and clears the key with that.
func TestSuspectIsClearedByAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccused(t)
		a.died("gone", "k")
		ctx, end := context.WithCancel(t.Context())
		var stream sync.WaitGroup
		stream.Go(func() {
			r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
			r.Header.Set(gateway.HeaderKey, "k")
			a.Handler(http.HandlerFunc(eventStream)).ServeHTTP(httptest.NewRecorder(), r)
		})
		time.Sleep(time.Second)
		if text := a.book(); text != "" {
			t.Errorf("the store has %q", text)
		}
		end()
		stream.Wait()
	})
}

func TestQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccused(t)
		a.died("gone,"+a.Incarnation(), "k")
		if err := a.do("k"); err != nil {
			t.Errorf("one of the workers lives: %v", err)
		}
		time.Sleep(time.Second) // until that is written
		a.died("gone,lost", "k")
		began := time.Now()
		err := a.do("k")
		q, ok := errors.AsType[*gateway.QuarantinedError](err)
		if !ok || q.Key != "k" || q.Until.Sub(began) < suspects.Within-time.Second || q.Until.Sub(began) > suspects.Within {
			t.Fatalf("refused by %#v", err)
		}
		if err := a.do("other"); err != nil {
			t.Error(err)
		}
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set(gateway.HeaderKey, "k")
		rec := httptest.NewRecorder()
		a.Handler(http.NotFoundHandler()).ServeHTTP(rec, r)
		if after, _ := strconv.Atoi(rec.Header().Get("Retry-After")); rec.Code != http.StatusServiceUnavailable || after < 590 || after > 600 || !strings.Contains(rec.Body.String(), "workers have crashed") {
			t.Errorf("a request gets %d, Retry-After %d: %s", rec.Code, after, rec.Body)
		}
		time.Sleep(time.Second)
		if text := a.book(); !strings.Contains(text, `"worker":"gone"`) || !strings.Contains(text, `"key":"k"`) {
			t.Errorf("the store has %q", text)
		}
		if s := a.Status().Quarantined; len(s) != 1 || s[0].Key != "k" || s[0].Workers[0] != "gone" || s[0].Workers[1] != "lost" || s[0].Seconds > 600 || s[0].Seconds < 590 {
			t.Errorf("the status has %+v", s)
		}
		if s, err := a.Explain("k"); err != nil || s.Quarantine == nil || s.Holder != nil {
			t.Errorf("explained by %+v, %v", s, err)
		}
		if err := a.Release(t.Context(), "other", "test"); !errors.Is(err, status.ErrNotQuarantined) {
			t.Errorf("release of another key: %v", err)
		}
		if err := a.Release(t.Context(), "k", "test"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if err := a.do("k"); err != nil || a.book() != "" {
			t.Errorf("after its release: %v, %q", err, a.book())
		}
	})
}

func TestQuarantineEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccused(t)
		a.died("gone,lost", "k")
		if err := a.do("k"); err == nil {
			t.Error("not refused")
		}
		time.Sleep(suspects.Within - 2*time.Second)
		if err := a.do("k"); err == nil {
			t.Error("not refused for all of its time")
		}
		time.Sleep(3 * time.Second)
		if err := a.do("k"); err != nil {
			t.Error(err)
		}
		time.Sleep(suspects.Within / 10)
		if text := a.book(); text != "" {
			t.Errorf("the store has %q", text)
		}
	})
}

// Requests of a route that holds no key clear it all the same, and are refused.
func TestSuspectsWithoutHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccused(t)
		h := a.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		ask := func() int { return askBy(t, h, "k", policy.Policy{Route: "r", Mode: policy.Affinity}).Code }
		a.died("gone", "k")
		code := ask()
		time.Sleep(time.Second)
		if text := a.book(); code != http.StatusOK || text != "" {
			t.Errorf("a request of a suspect: status %d, and the store has %q", code, text)
		}
		a.died("gone,lost", "k")
		if code := ask(); code != http.StatusServiceUnavailable {
			t.Errorf("a request of a quarantined key: status %d", code)
		}
	})
}

// Locks of a quarantined key go on, at its owner as elsewhere.
func TestLocksOfAQuarantinedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccused(t)
		a.died("gone,lost", "k")
		_, _, release, err := a.Local(http.NotFoundHandler()).Acquire(t.Context(), "k", 0, false, 0)
		if err != nil {
			t.Fatal(err)
		}
		release()
	})
}

// Neither a worker that has left nor a process that has lost its session and goes on has died.
func TestNoDeaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		a, b := &accused{c.Start(), t, c.Store}, c.Start()
		together(t, a.Worker, b)
		left, lost := b.Incarnation(), a.Incarnation()
		if err := b.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.Member.Vanish()
		if err := a.store.Release(t.Context(), lost); err != nil {
			t.Fatal(err)
		}
		for a.Incarnation() == lost || a.Serving() < 16 {
			time.Sleep(10 * time.Millisecond)
		}
		a.died(left+","+lost, "k")
		if text := a.book(); text != "" {
			t.Errorf("the store has %q", text)
		}
		if err := a.do("k"); err != nil {
			t.Error(err)
		}
	})
}

// A book that cannot be read, as of a later version, refuses nothing, and stays as it is.
func TestSuspectsUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccused(t)
		a.died("gone,lost", "k")
		a.write("of a later version")
		if err := a.do("k"); err != nil {
			t.Error(err)
		}
		time.Sleep(suspects.Within * 2)
		if text := a.book(); text != "of a later version" {
			t.Errorf("the store has %q", text)
		}
	})
}
