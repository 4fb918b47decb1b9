package sidecar_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/sidecar"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// batchApp is an app behind a sidecar that takes batches.
type batchApp struct {
	mu     sync.Mutex
	sizes  []int
	single int
	answer func(rw http.ResponseWriter, requests []batchRequest) bool // instead of the usual answer, if it reports true
}

type batchRequest struct {
	Target string
	Header map[string]string
	Body   json.RawMessage
}

func (a *batchApp) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/batch" {
		a.mu.Lock()
		a.single++
		a.mu.Unlock()
		fmt.Fprintf(rw, "%s alone", r.Method)
		return
	}
	var requests []batchRequest
	if err := json.NewDecoder(r.Body).Decode(&requests); err != nil || r.Header.Get("Keyway-Token") == "" || r.Header.Get("Keyway-Key") != "k" || r.Header.Get("Keyway-Batch") != fmt.Sprint(len(requests)) {
		http.Error(rw, fmt.Sprint(err, r.Header), http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	a.sizes = append(a.sizes, len(requests))
	a.mu.Unlock()
	if a.answer != nil && a.answer(rw, requests) {
		return
	}
	answers := []string{}
	for _, q := range requests {
		answers = append(answers, fmt.Sprintf(`{"status":201,"header":{"X-Target":%q,"X-Host":[%q]},"body":{"you":%s}}`, q.Target, q.Header["host"], q.Body))
	}
	fmt.Fprintf(rw, "[%s]", strings.Join(answers, ","))
}

func (a *batchApp) seen() (sizes []int, single int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sizes, a.single
}

func TestSidecarBatch(t *testing.T) {
	for _, way := range []string{"HTTP", "link"} {
		t.Run(way, func(t *testing.T) {
			app := new(batchApp)
			s, w := site.InFrontOf(t, site.Serve(t, app).URL, func(cfg *worker.Config) { cfg.Batch = "/batch" })
			base, client := s.URL, s.HTTP
			if way == "HTTP" {
				h := kit.Must(sidecar.New(w.Worker, kit.Must(url.Parse(site.Serve(t, app).URL))))
				base, client = site.Serve(t, h).URL, http.DefaultClient
			}
			wait := w.HoldKey(t, 4)
			var wg sync.WaitGroup
			for i := range 3 {
				wg.Go(func() {
					status, header, body := site.Post(t, client, fmt.Sprintf("%s/stock/%d?x=%%20", base, i), "application/json; charset=utf-8", fmt.Sprintf(`{"n": %d}`, i))
					if status != 201 || body != fmt.Sprintf(`{"you":{"n": %d}}`, i) || header.Get("Content-Type") != "application/json" ||
						header.Get("X-Target") != fmt.Sprintf("/stock/%d?x=%%20", i) || header.Get("X-Host") != strings.TrimPrefix(base, "http://") {
						t.Errorf("%d: %d, %q, %v", i, status, body, header)
					}
				})
			}
			kit.Eventually(t, "the items wait", func() bool { return w.Queued("k") == 3 })
			wg.Go(func() {
				if status, _, body := site.Post(t, client, base+"/", "text/plain", "{}"); status != 200 || body != "POST alone" {
					t.Errorf("no JSON: %d, %q", status, body)
				}
			})
			wg.Wait()
			wait()
			if sizes, single := app.seen(); len(sizes) != 1 || sizes[0] != 3 || single != 1 {
				t.Errorf("batches of %v, %d alone", sizes, single)
			}
			for _, body := range []string{`{"a":`, "\"\xff\"", strings.Repeat("[", 100) + strings.Repeat("]", 100), strings.Repeat("1", 100), `"\ud800"`, `{"buy":1e999}`} {
				if status, _, got := site.Post(t, client, base+"/", "application/json", body); status != 400 {
					t.Errorf("body %.20q: %d, %q", body, status, got)
				}
			}
			for _, own := range []string{"/batch", "/batch?x=1", "/%62atch", "/Batch", "/x/../batch/", "/batch;x"} {
				for _, of := range []string{"text/plain", "application/json"} {
					if status, _, got := site.Post(t, client, base+own, of, `[{}]`); status != 404 {
						t.Errorf("%s: %d, %q", own, status, got)
					}
				}
			}
			if sizes, single := app.seen(); len(sizes) != 1 || single != 1 {
				t.Errorf("the app has got batches of %v and %d requests, want one each", sizes, single)
			}
		})
	}
}

// TestSidecarBatchAnswers: what clients get where the app does not answer a batch
// as it should.
func TestSidecarBatchAnswers(t *testing.T) {
	tests := []struct {
		name   string
		status int
		answer string
		want   [2]int
	}{
		{"status", 500, `[{},{}]`, [2]int{502, 502}},
		{"no JSON", 200, `oops`, [2]int{502, 502}},
		{"no array", 200, `{}`, [2]int{502, 502}},
		{"too few", 200, `[{}]`, [2]int{502, 502}},
		{"too many", 200, `[{},{},{}]`, [2]int{502, 502}},
		{"more behind", 200, `[{},{}] []`, [2]int{502, 502}},
		{"defaults", 200, `[{},{"status":204,"body":1}]`, [2]int{200, 204}},
		{"one is none", 200, `[3,{"status":404}]`, [2]int{502, 404}},
		{"one has no status", 200, `[{"status":101},{"status":409,"body":null}]`, [2]int{502, 409}},
		{"one has a bad header", 200, `[{"header":{"X":"a\r\nSet-Cookie: b"}},{"header":{"Content-Length":"7","Keyway-Epoch":"1"}}]`, [2]int{502, 200}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			app := &batchApp{answer: func(rw http.ResponseWriter, _ []batchRequest) bool {
				rw.WriteHeader(tt.status)
				fmt.Fprint(rw, tt.answer)
				return true
			}}
			w := site.New(t, 16).StartReady(func(cfg *worker.Config) { cfg.Batch = "/batch" })
			s := site.Serve(t, kit.Must(sidecar.New(w.Worker, kit.Must(url.Parse(site.Serve(t, app).URL)))))
			wait := w.HoldKey(t, 2)
			var wg sync.WaitGroup
			for i, want := range tt.want {
				kit.Eventually(t, "the one before waits", func() bool { return w.Queued("k") == i })
				wg.Go(func() {
					status, header, body := site.Post(t, http.DefaultClient, s.URL, "application/json", `1`)
					if status != want || (status == 502) != strings.Contains(body, "may have run") || header.Get("Keyway-Epoch") != "" {
						t.Errorf("request %d: %d, %q, %v; want %d", i, status, body, header, want)
					}
				})
			}
			wg.Wait()
			wait()
		})
	}
}

// TestSidecarBatchConfig: a bad path is an error.
func TestSidecarBatchConfig(t *testing.T) {
	for _, app := range []worker.App{{Batch: "batch"}, {Batch: "/a b"}, {Batch: "/"}, {Batch: "/a/../b"}, {Batch: "/batch", Batches: worker.BatchConfig{MaxItems: -1}}} {
		w := site.New(t, 16).Start(func(c *worker.Config) { c.App = app })
		if _, err := sidecar.New(w.Worker, kit.Must(url.Parse("http://127.0.0.1:1"))); err == nil {
			t.Errorf("%+v: no error", app)
		}
	}
}

// TestSidecarBatchAbandoned: the key stays held until the app has answered, although
// the clients have left, and then for AbandonedTimeout at most.
func TestSidecarBatchAbandoned(t *testing.T) {
	for _, ends := range []bool{true, false} {
		t.Run(fmt.Sprint("app answers=", ends), func(t *testing.T) {
			began, end := make(chan struct{}), make(chan struct{})
			app := &batchApp{}
			gone := make(chan struct{})
			server := site.Serve(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				close(began)
				select {
				case <-end:
				case <-r.Context().Done():
					close(gone)
				}
				app.ServeHTTP(rw, r)
			}))
			abandoned := time.Minute
			if !ends {
				abandoned = 100 * time.Millisecond
			}
			w := site.New(t, 16).StartReady(func(cfg *worker.Config) { cfg.Batch, cfg.AbandonedTimeout = "/batch", abandoned })
			s := site.Serve(t, kit.Must(sidecar.New(w.Worker, kit.Must(url.Parse(server.URL)))))
			ctx, leave := context.WithCancel(t.Context())
			left := make(chan struct{})
			go func() {
				defer close(left)
				req := kit.Must(http.NewRequestWithContext(ctx, http.MethodPost, s.URL, strings.NewReader("1")))
				req.Header.Set(gateway.HeaderKey, "k")
				req.Header.Set("Content-Type", "application/json")
				if res, err := http.DefaultClient.Do(req); err == nil {
					res.Body.Close()
					t.Error("the client has an answer")
				}
			}()
			<-began
			leave()
			<-left
			next := make(chan error, 1)
			go func() { next <- w.Do(t.Context(), "k", func(gateway.Execution) error { return nil }) }()
			if ends {
				kit.Eventually(t, "the next waits", func() bool { return w.Queued("k") == 1 })
				select {
				case <-gone:
					t.Error("the app's connection was closed")
				case err := <-next:
					t.Errorf("the key was free while the app worked: %v", err)
				case <-time.After(50 * time.Millisecond):
				}
				close(end)
			} else {
				<-gone
			}
			if err := <-next; err != nil {
				t.Error(err)
			}
		})
	}
}
