package worker_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/appstate"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/policy"
	"github.com/keyway-go/keyway/internal/status"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

func explain(t *testing.T, w *site.Worker, key string) status.KeyStatus {
	t.Helper()
	return kit.Must(w.Explain(key))
}

// Explain tells who holds a key and for how long, and how many wait for how many
// clients.
func TestExplainAHotKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).StartReady()
		release := make(chan struct{})
		var token int64
		h := w.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			token, _ = worker.TokenFrom(r.Context())
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}))
		var wg sync.WaitGroup
		send := func(client int) {
			wg.Go(func() {
				r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
				r.Header.Set(gateway.HeaderKey, "k")
				r.Header.Set(hop.HeaderClient, fmt.Sprint(client))
				h.ServeHTTP(httptest.NewRecorder(), r)
			})
			synctest.Wait()
		}
		if s := explain(t, w, "k"); !s.Served || s.Holder != nil || s.Waiting != 0 || s.Epoch == 0 || s.Owner != "w1" || s.WaitsFor != "" {
			t.Errorf("an idle key: %+v", s)
		}
		for _, client := range []int{1, 2, 2, 2, 3} {
			send(client)
		}
		time.Sleep(1500 * time.Millisecond)
		s := explain(t, w, "k")
		if s.Waiting != 4 || s.Clients != 2 || s.MostOfOne != 3 || s.QueuePerKey != 1000 || s.Residue != nil {
			t.Errorf("a key that is waited for: %+v", s)
		}
		if x := s.Holder; x == nil || x.Token != token || x.Kind != "execution" || x.Seconds != 1.5 || x.AtLeast || x.LimitSeconds != 60 {
			t.Errorf("holder: %+v", x)
		}
		if s := w.Status(); s.BusyKeys != 1 || s.Waiting != 4 || s.Queue != 100_000 || s.State != "active" || s.NotReady != "" || s.Served != 16 || s.Wanted != 16 {
			t.Errorf("status: %+v", s)
		}
		if s := w.Status(); s.SessionSlackSeconds <= 0 || s.SessionSlackSeconds > 7 || s.Store.Answered == nil || s.Store.LastError != "" || s.App != nil {
			t.Errorf("status: %+v", s)
		}
		close(release)
		wg.Wait()
	})
}

// An execution without a limit in time is known to have held its key at least as long
// as somebody has looked.
func TestExplainACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).StartReady()
		release := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() { _ = w.Do(t.Context(), "k", func(gateway.Execution) error { <-release; return nil }) })
		time.Sleep(8 * time.Second)
		if x := explain(t, w, "k").Holder; x == nil || !x.AtLeast || x.Seconds < 5 || x.Seconds > 8 {
			t.Errorf("holder after 8s: %+v", x)
		}
		time.Sleep(time.Minute)
		if x := explain(t, w, "k").Holder; x == nil || !x.AtLeast || x.Seconds < 65 || x.Seconds > 68 {
			t.Errorf("holder after 68s: %+v", x)
		}
		close(release)
		wg.Wait()
	})
}

// Calls within an execution have its token, and leave its limit in time the holder's.
func TestExplainAnExecutionAroundOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).StartReady()
		var nest func(ctx context.Context, depth int) error
		nest = func(ctx context.Context, depth int) error {
			_ = ctx.Done()
			if x := explain(t, w, "k").Holder; x == nil || x.AtLeast || x.LimitSeconds != 60 {
				return fmt.Errorf("%d executions around: %+v", depth, x)
			}
			if depth == 16 {
				return nil
			}
			return w.Do(ctx, "k", func(x gateway.Execution) error { return nest(x.Context(), depth+1) })
		}
		h := w.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if err := nest(r.Context(), 0); err != nil {
				t.Error(err)
			}
		}))
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		r.Header.Set(gateway.HeaderKey, "k")
		h.ServeHTTP(httptest.NewRecorder(), r)
	})
}

// Explain names the former owner where a key runs, and what a partition waits for that
// nobody serves.
func TestExplainResidueAndAbsence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		a := c.StartReady()
		var wg sync.WaitGroup
		var tokens sync.Map
		release := make(chan struct{})
		for p := range 16 {
			wg.Go(func() {
				_ = a.Do(t.Context(), keyIn(c.Ring, p), func(x gateway.Execution) error {
					tokens.Store(p, x.Token())
					<-release
					return nil
				})
			})
		}
		synctest.Wait()
		b := c.Start()
		kit.Eventually(t, "it is said from whom partitions come", func() bool {
			m := b.Status().Missing
			return len(m) == 1 && m[0].Partitions > 0 && m[0] == status.MissingStatus{Worker: "w1", Partitions: b.Status().Arriving}
		})
		together(t, a, b)
		if s := b.Status(); s.Missing != nil || s.Executions != 0 || a.Status().Executions != 16 {
			t.Errorf("missing where all is served: %+v; executions: %d and %d", s.Missing, s.Executions, a.Status().Executions)
		}
		for p := range 16 {
			key := keyIn(c.Ring, p)
			m, _ := b.Member.View().Owner(p)
			if m.Name != "w2" {
				continue
			}
			token, _ := tokens.Load(p)
			s := explain(t, b, key)
			if s.Residue == nil || s.Residue.Worker != "w1" || s.Residue.Token != token || s.Residue.Seconds < 1 || s.Holder != nil || !s.Served {
				t.Errorf("partition %d: %+v, residue %+v, want token %v at w1", p, s, s.Residue, token)
			}
			if s := explain(t, a, key); s.Served || s.Owner != "w2" || s.Holder == nil || s.Holder.Token != token || s.WaitsFor != "" {
				t.Errorf("partition %d at its former owner: %+v", p, s)
			}
		}
		close(release)
		wg.Wait()
		a.Close()
		a.Member.Vanish()
		time.Sleep(time.Second)
		absent := 0
		for p := range 16 {
			if s := explain(t, b, keyIn(c.Ring, p)); !s.Served {
				absent++
				if !strings.Contains(s.WaitsFor, "the session of its last owner, which is gone, has not expired") {
					t.Errorf("partition %d waits for %q", p, s.WaitsFor)
				}
			}
		}
		if absent == 0 {
			t.Error("nothing was missing")
		}
		m := b.Status().Missing
		if len(m) != 1 || m[0].Worker != "w1" || !m[0].Gone || m[0].Partitions != absent || !strings.Contains(m[0].WaitsFor, "the session of its last owner") || m[0].WaitsSeconds <= 0 || m[0].WaitsSeconds > 10 {
			t.Errorf("missing: %+v, want %d partitions of w1, which is gone", m, absent)
		}
	})
}

// Explain names the member that holds a key, and the rates of routes.
func TestExplainHoldsAndRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).StartReady()
		m := newCaller(t, w)
		id := holds.NewID()
		grant := m.acquire("held", id)
		if x := explain(t, w, "held").Holder; x == nil || x.Kind != "hold" || x.Token != grant.Token || x.HeldBy == "" {
			t.Errorf("holder: %+v", x)
		}
		if n := w.Status().Holds; n != 1 {
			t.Errorf("%d holds", n)
		}
		m.release(id)

		h := w.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		asks := policy.Policy{Route: "orders", Rate: policy.Rate{PerSecond: 2, Burst: 5}}
		for range 3 {
			r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
			r.Header.Set(gateway.HeaderKey, "rated")
			r.Header.Set(hop.HeaderPolicy, string(policy.AppendText(nil, asks.Append(nil))))
			rec := httptest.NewRecorder()
			if h.ServeHTTP(rec, r); rec.Code != http.StatusOK {
				t.Fatalf("%d %s", rec.Code, rec.Body)
			}
		}
		if r := explain(t, w, "rated").Rates; len(r) != 1 || r[0] != (status.KeyRate{Route: "orders", PerSecond: 2, Burst: 5, Left: 2}) {
			t.Errorf("rates: %+v", r)
		}
		if r := explain(t, w, "other").Rates; len(r) != 0 {
			t.Errorf("rates of a key without requests: %+v", r)
		}
	})
}

// watchApp has a worker watch an app, and returns what says why that is down; nil while it is up.
func watchApp(w *site.Worker) (set func(down error)) {
	tells := make(chan func(appstate.State), 1)
	w.WatchApp(appstate.State{}, func(_ context.Context, tell func(appstate.State)) { tells <- tell })
	tell := <-tells
	return func(down error) { tell(appstate.State{Down: down}) }
}

// Status tells of trouble with the store and with the app.
func TestStatusOfTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		cut := &site.CutStore{Store: c.Store}
		w := c.StartReady(func(cfg *worker.Config) { cfg.Store = cut })
		app := watchApp(w)
		time.Sleep(2 * time.Second)
		if s := w.Status(); s.App == nil || !s.App.Up {
			t.Errorf("app: %+v", s.App)
		}
		app(fmt.Errorf("%w: connection refused", worker.ErrAppDown))
		cut.Set(true)
		time.Sleep(5 * time.Second)
		s := w.Status()
		if s.App == nil || s.App.Up || !strings.Contains(s.App.Trouble, "connection refused") {
			t.Errorf("app: %+v", s.App)
		}
		if s.Store.LastError != context.DeadlineExceeded.Error() || s.Store.FailedAt == nil || s.Store.FailedAt.Before(*s.Store.Answered) || s.SessionSlackSeconds > 4 {
			t.Errorf("store: %+v, slack %v", s.Store, s.SessionSlackSeconds)
		}
	})
}
