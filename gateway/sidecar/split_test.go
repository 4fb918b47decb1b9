package sidecar_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/sidecar"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// typedApp decodes a batch into typed requests before it does anything, as an app in Go or
// of FastAPI does.
type typedApp struct {
	status int    // with which it refuses a batch
	says   string // Keyway-Batch of that answer

	mu     sync.Mutex
	sizes  []int   // of the batches
	tokens []int64 // of the batches
	bought []int   // in the order in which they were
}

func (a *typedApp) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	a.mu.Lock()
	defer a.mu.Unlock()
	token, _ := strconv.ParseInt(r.Header.Get("Keyway-Token"), 10, 64)
	size, _ := strconv.Atoi(r.Header.Get("Keyway-Batch"))
	a.sizes, a.tokens = append(a.sizes, size), append(a.tokens, token)
	var requests []struct{ Body struct{ Buy int } }
	if err := json.Unmarshal(text, &requests); err != nil || len(requests) != size {
		if a.says != "" {
			rw.Header().Set("Keyway-Batch", a.says)
		}
		http.Error(rw, "cannot", a.status)
		return
	}
	answers := []string{}
	for _, q := range requests {
		a.bought = append(a.bought, q.Body.Buy)
		answers = append(answers, fmt.Sprintf(`{"body":%d}`, q.Body.Buy))
	}
	fmt.Fprintf(rw, "[%s]", strings.Join(answers, ","))
}

// TestSidecarBatchSplits: an app that has refused an array before it began with it gets its
// requests one by one, so that one of them fails nobody else's.
func TestSidecarBatchSplits(t *testing.T) {
	tests := []struct {
		status int
		says   string
		bad    int // what the bad one is answered with
		split  bool
	}{
		{400, "", 400, true},
		{413, "", 400, true},
		{415, "", 400, true},
		{422, "", 400, true},
		{500, "undone", 502, true},
		{409, "undone", 400, true},
		{500, "", 502, false},
		{500, "3", 502, false},
		{404, "", 502, false},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.status, tt.says), func(t *testing.T) {
			app := &typedApp{status: tt.status, says: tt.says}
			w := site.New(t, 16).StartReady(func(cfg *worker.Config) { cfg.Batch = "/batch" })
			s := site.Serve(t, kit.Must(sidecar.New(w.Worker, kit.Must(url.Parse(site.Serve(t, app).URL)))))
			wait := w.HoldKey(t, 4)
			var wg sync.WaitGroup
			for i, buy := range []string{"1", `"two"`, "3", "4"} {
				kit.Eventually(t, "the one before waits", func() bool { return w.Queued("k") == i })
				wg.Go(func() {
					status, _, body := site.Post(t, http.DefaultClient, s.URL, "application/json", `{"buy":`+buy+`}`)
					want := 200
					if buy == `"two"` {
						want = tt.bad
					} else if !tt.split {
						want = 502
					}
					if status != want || status == 200 && body != buy || (status == 502) != strings.Contains(body, "may have run") {
						t.Errorf("buy %s: %d, %q; want %d", buy, status, body, want)
					}
				})
			}
			wg.Wait()
			wait()
			sizes, bought := []int{4, 1, 1, 1, 1}, []int{1, 3, 4}
			if !tt.split {
				sizes, bought = []int{4}, nil
			}
			if !slices.Equal(app.sizes, sizes) || !slices.Equal(app.bought, bought) {
				t.Errorf("batches of %v, bought %v; want %v, %v", app.sizes, app.bought, sizes, bought)
			}
			if status, _, _ := site.Post(t, http.DefaultClient, s.URL, "application/json", `{"buy":5}`); status != 200 {
				t.Errorf("the next one: %d", status)
			}
			if !slices.IsSorted(app.tokens) || len(slices.Compact(slices.Clone(app.tokens))) != len(app.tokens) {
				t.Errorf("tokens %v, want each above those before it", app.tokens)
			}
		})
	}
}

// TestSidecarBatchSplitEnds: what was not sent again when the worker may begin nothing any more
// has not run, and is said to be so.
func TestSidecarBatchSplitEnds(t *testing.T) {
	tests := []struct {
		name  string
		at    int // the batch during which the worker ends, or loses the key's partition
		leave func(w, other *site.Worker, givenUp <-chan struct{})
		want  [3]int
	}{
		{"closed", 2, func(w, _ *site.Worker, givenUp <-chan struct{}) { w.Close(); <-givenUp }, [3]int{502, 503, 503}},
		{"moved", 1, func(w, other *site.Worker, _ <-chan struct{}) {
			go func() { _ = w.LeaveRing(t.Context()) }()
			kit.Eventually(t, "the partition has moved", func() bool { return other.Serving() == 1 })
		}, [3]int{503, 503, 503}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			app := &typedApp{status: 400}
			c := site.New(t, 1)
			w := c.StartReady(func(cfg *worker.Config) { cfg.Batch = "/batch" })
			var other *site.Worker
			if tt.name == "moved" {
				other = c.Start()
				kit.Eventually(t, "there are two on the ring", func() bool { return len(other.Member.View().Workers()) == 2 })
			}
			batches := 0
			s := site.Serve(t, kit.Must(sidecar.New(w.Worker, kit.Must(url.Parse(site.Serve(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				body := kit.Must(io.ReadAll(r.Body)) // the server looks for the end of the connection from then on
				r.Body = io.NopCloser(bytes.NewReader(body))
				if batches++; batches == tt.at {
					tt.leave(w, other, r.Context().Done())
				}
				app.ServeHTTP(rw, r)
			})).URL)))))
			kit.Eventually(t, "the worker has the key", func() bool { return w.Serving() == 1 })
			wait := w.HoldKey(t, 3)
			var wg sync.WaitGroup
			for i, buy := range []string{"1", `"two"`, "3"} {
				kit.Eventually(t, "the one before waits", func() bool { return w.Queued("k") == i })
				wg.Go(func() {
					if status, _, body := site.Post(t, http.DefaultClient, s.URL, "application/json", `{"buy":`+buy+`}`); status != tt.want[i] {
						t.Errorf("buy %s: %d, %q; want %d", buy, status, body, tt.want[i])
					}
				})
			}
			wg.Wait()
			wait()
			if batches != tt.at {
				t.Errorf("%d batches, want %d", batches, tt.at)
			}
		})
	}
}

// TestTrapSplitBatchNeedsTheLease: the app refuses an array when its worker may begin nothing any more,
// though what runs there goes on. It gets none of the requests.
func TestTrapSplitBatchNeedsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kit.EmptyPools(t)
		c := site.New(t, 1)
		cut := &site.CutStore{Store: c.Store}
		w := c.StartOwner(func(cfg *worker.Config) { cfg.Batch, cfg.Store = "/batch", cut })
		app, front := &typedApp{status: 400}, site.NewListener()
		server := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Keyway-Batch") == "2" {
				cut.Set(true)
				time.Sleep(kit.TTL * 75 / 100) // nothing begins from 0.7 TTL on, what runs is cancelled at 0.8
			}
			app.ServeHTTP(rw, r)
		})}
		go server.Serve(front)
		h := kit.Must(sidecar.Over(w.Worker, front.Dial))
		wait := w.HoldKey(t, 2)
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				r := httptest.NewRequestWithContext(t.Context(), "POST", "/", strings.NewReader(`{"buy":"one"}`))
				r.Header.Set(gateway.HeaderKey, "k")
				r.Header.Set("Content-Type", "application/json")
				rec := httptest.NewRecorder()
				h.ServeHTTP(rec, r)
				if rec.Code != http.StatusServiceUnavailable {
					t.Errorf("%d, %s; want 503", rec.Code, rec.Body)
				}
			})
		}
		wg.Wait()
		wait()
		if !slices.Equal(app.sizes, []int{2}) {
			t.Errorf("batches of %v, want one of 2", app.sizes)
		}
		w.Close()
		server.Close()
		time.Sleep(time.Minute) // of the bubble: whatever is left ends
	})
}
