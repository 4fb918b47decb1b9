package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/routertest"
	"github.com/keyway-go/keyway/internal/test/workertest"
	"github.com/keyway-go/keyway/ring"
)

// sale is an item of the tests' batches.
type sale struct {
	SKU, Client, Key string
	Size             int
}

// shop returns what a service serves: sales in batches, and all else with the key
// held. seen, if not nil, is called for each batch.
func shop(t *testing.T, w *worker.Worker, seen func(items []*worker.Item[sale, int])) *http.ServeMux {
	batcher, err := worker.NewBatcher(w, worker.BatchConfig{}, func(x worker.Execution, items []*worker.Item[sale, int]) error {
		if seen != nil {
			seen(items)
		}
		for _, i := range items {
			i.Out = len(items)
			if i.In.Client == "poor" {
				i.Err = errors.New("no money")
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /stock/{sku}", worker.BatchHandler(batcher, func(r *http.Request) (sale, error) {
		body, err := io.ReadAll(r.Body)
		if err == nil && strings.HasPrefix(string(body), "bad") {
			err = errors.New("bad sale")
		}
		client, _, _ := strings.Cut(string(body), " ")
		return sale{r.PathValue("sku"), client, r.Header.Get(gateway.HeaderKey), len(body)}, err
	}, func(rw http.ResponseWriter, n int, err error) {
		rw.Header().Set("Keyway-Refused", "not-owner")
		if err != nil {
			http.Error(rw, err.Error(), http.StatusPaymentRequired)
			return
		}
		fmt.Fprintf(rw, "sold with %d", n-1)
	}))
	mux.HandleFunc("/stock/{sku}", func(rw http.ResponseWriter, r *http.Request) {
		token, _ := worker.TokenFrom(r.Context())
		fmt.Fprintf(rw, "%s held: %v", r.PathValue("sku"), token != 0)
	})
	return mux
}

// inFront makes a router in front of workers that serve what handler returns for
// them, over the link.
func inFront(t *testing.T, c *workertest.Cluster, w *workertest.Worker, h http.Handler) {
	addr := w.Listen(t, h)
	if err := w.Member.Announce(func(self *ring.Member) { self.Addr = addr }); err != nil {
		t.Fatal(err)
	}
}

func newSite(t *testing.T, c *workertest.Cluster) *routertest.Site {
	gate := kit.Must(c.Hub.Join(ring.Member{Name: "router", Role: ring.RoleRouter, State: ring.StateActive}))
	return routertest.ThroughServer(t, routertest.New(t, router.Config{Members: gate}))
}

// post sends one POST for the key k.
func post(t *testing.T, client *http.Client, target, contentType, body string) (int, http.Header, string) {
	req := kit.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, target, strings.NewReader(body)))
	req.Header.Set("X-Key", "k")
	req.Header.Set(gateway.HeaderKey, "k")
	req.Header.Set("Content-Type", contentType)
	res, err := client.Do(req)
	if err != nil {
		t.Error(err)
		return 0, nil, ""
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		t.Error(err)
	}
	return res.StatusCode, res.Header, string(got)
}

// holdKey holds the key k until n callers wait for it.
func holdKey(t *testing.T, w *workertest.Worker, n int) (wait func()) {
	held := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := w.Do(t.Context(), "k", func(worker.Execution) error {
			close(held)
			kit.Eventually(t, "the callers wait", func() bool { return w.Queued("k") == n })
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}()
	<-held
	return func() { <-done }
}

// TestBatchHandler: in one mux beside handlers that hold their key, straight to the
// worker and over the link.
func TestBatchHandler(t *testing.T) {
	for _, way := range []string{"HTTP", "link"} {
		t.Run(way, func(t *testing.T) {
			c := workertest.New(t, 16)
			w := c.StartReady()
			seen := make(chan []*worker.Item[sale, int], 100)
			h := w.Handler(shop(t, w.Worker, func(items []*worker.Item[sale, int]) { seen <- items }))
			var base string
			client := http.DefaultClient
			if way == "HTTP" {
				base = workertest.Serve(t, h).URL
			} else {
				inFront(t, c, w, h)
				s := newSite(t, c)
				base, client = s.URL, s.Client()
			}
			wait := holdKey(t, w, 3)
			var wg sync.WaitGroup
			for _, sends := range []string{"rich", "poor", "rich again"} {
				wg.Go(func() {
					status, header, body := post(t, client, base+"/stock/42?x=1", "text/plain", sends)
					want, text := 200, "sold with 2"
					if sends == "poor" {
						want, text = 402, "no money\n"
					}
					if status != want || body != text || header.Get("Keyway-Refused") != "" {
						t.Errorf("%s: %d, %q, %v", sends, status, body, header)
					}
				})
			}
			wg.Wait()
			wait()
			if items := <-seen; len(seen) != 0 || len(items) != 3 || items[0].In.SKU != "42" || items[0].In.Key != "k" {
				t.Errorf("a batch of %d, and %d more", len(items), len(seen))
			}
			if status, _, body := post(t, client, base+"/stock/42", "text/plain", "bad"); status != 400 || body != "the request cannot be handled: bad sale\n" {
				t.Errorf("bad item: %d, %q", status, body)
			}
			if status, _, body := post(t, client, base+"/stock/42", "text/plain", strings.Repeat("x", 1<<20+1)); status != 413 {
				t.Errorf("large item: %d, %q", status, body)
			}
			req := kit.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/stock/42", nil))
			req.Header.Set("X-Key", "k")
			req.Header.Set(gateway.HeaderKey, "k")
			if _, body := kit.Do(t, client, req); body != "42 held: true" {
				t.Errorf("the handler beside: %q", body)
			}
		})
	}
}

// TestBatchHandlerRefuses as Handler does.
func TestBatchHandlerRefuses(t *testing.T) {
	c := workertest.New(t, 16)
	other := c.StartReady()
	w := c.Start(func(cfg *worker.Config) { cfg.Members = frozen{cfg.Members} })
	ran := false
	mux := shop(t, w.Worker, func([]*worker.Item[sale, int]) { ran = true })
	s := workertest.Serve(t, w.Handler(mux))
	kit.Eventually(t, "the worker knows the owner", func() bool {
		status, header, _ := post(t, http.DefaultClient, s.URL+"/stock/42", "text/plain", "rich")
		return status == 421 && header.Get("Keyway-Owner") == other.Incarnation() && header.Get("Keyway-Epoch") != ""
	})
	req := kit.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/stock/42", strings.NewReader("rich")))
	if res, body := kit.Do(t, http.DefaultClient, req); res.StatusCode != 400 || !strings.Contains(body, gateway.HeaderKey) {
		t.Errorf("no key: %d, %q", res.StatusCode, body)
	}
	nested := workertest.Serve(t, other.Handler(shop(t, other.Worker, func([]*worker.Item[sale, int]) { ran = true })))
	req = kit.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, nested.URL+"/stock/42", strings.NewReader("rich")))
	req.Header.Set(gateway.HeaderKey, "k")
	req.Header.Set("Baggage", "keyway-held="+kit.Must(heldMember(t, other)))
	if res, body := kit.Do(t, http.DefaultClient, req); res.StatusCode != 508 || !strings.Contains(body, `"k"`) {
		t.Errorf("nested: %d, %q", res.StatusCode, body)
	}
	if ran {
		t.Error("a refused request ran")
	}
}

// heldMember returns the hash by which baggage names the key k.
func heldMember(t *testing.T, w *workertest.Worker) (hash string, err error) {
	s := workertest.Serve(t, w.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, hash, _ = strings.Cut(r.Header.Get("Baggage"), "keyway-held=")
	})))
	kit.Fetch(t, s.URL, gateway.HeaderKey, "k")
	if hash == "" {
		err = errors.New("no baggage")
	}
	return hash, err
}

// TestBatchHandlerFails: without a result the client is told that its request may
// have run.
func TestBatchHandlerFails(t *testing.T) {
	w := workertest.New(t, 16).StartReady()
	s := workertest.Serve(t, w.Handler(shop(t, w.Worker, func([]*worker.Item[sale, int]) { panic("secret") })))
	if status, _, body := post(t, http.DefaultClient, s.URL+"/stock/42", "text/plain", "rich"); status != 500 || !strings.Contains(body, "may have run") || strings.Contains(body, "secret") {
		t.Errorf("%d, %q", status, body)
	}
}

// TestBatchHandlerMoves: while partitions move each request runs once, also one
// whose body was read before the worker found that the key is another's.
func TestBatchHandlerMoves(t *testing.T) {
	c := workertest.New(t, 16)
	var mu sync.Mutex
	ran := map[string]int{}
	workers := map[*workertest.Worker]bool{}
	start := func() *workertest.Worker {
		w := c.Start()
		inFront(t, c, w, w.Handler(shop(t, w.Worker, func(items []*worker.Item[sale, int]) {
			mu.Lock()
			defer mu.Unlock()
			workers[w] = true
			for _, i := range items {
				ran[i.In.Client]++
			}
		})))
		return w
	}
	first := start()
	kit.Eventually(t, "it serves", func() bool { return first.Serving() == 16 })
	s := newSite(t, c)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				id := fmt.Sprintf("%d-%d", g, n)
				req := kit.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/stock/42", strings.NewReader(id+" "+strings.Repeat("x", 60<<10))))
				req.Header.Set("X-Key", fmt.Sprint(n%32))
				res, err := s.Client().Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
				mu.Lock()
				if res.StatusCode != 200 || ran[id] != 1 {
					t.Errorf("%s: status %d, ran %d times", id, res.StatusCode, ran[id])
				}
				mu.Unlock()
			}
		})
	}
	second := start()
	kit.Eventually(t, "both serve", func() bool { return first.Serving() > 0 && second.Serving() > 0 })
	kit.Eventually(t, "both have run batches", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return workers[second]
	})
	close(stop)
	wg.Wait()
}

// TestBatchHandlerInHandler: a handler that holds the key and is no mux runs the
// item by itself.
func TestBatchHandlerInHandler(t *testing.T) {
	w := workertest.New(t, 16).StartReady()
	mux := shop(t, w.Worker, nil)
	s := workertest.Serve(t, w.Handler(http.HandlerFunc(mux.ServeHTTP)))
	if status, _, body := post(t, http.DefaultClient, s.URL+"/stock/42", "text/plain", "rich"); status != 200 || body != "sold with 0" {
		t.Errorf("%d, %q", status, body)
	}
}

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
			c := workertest.New(t, 16)
			w := c.StartReady(func(cfg *worker.Config) { cfg.Batch = "/batch" })
			h := kit.Must(w.Sidecar(kit.Must(url.Parse(workertest.Serve(t, app).URL))))
			var base string
			client := http.DefaultClient
			if way == "HTTP" {
				base = workertest.Serve(t, h).URL
			} else {
				inFront(t, c, w, h)
				s := newSite(t, c)
				base, client = s.URL, s.Client()
			}
			wait := holdKey(t, w, 4)
			var wg sync.WaitGroup
			for i := range 3 {
				wg.Go(func() {
					status, header, body := post(t, client, fmt.Sprintf("%s/stock/%d?x=%%20", base, i), "application/json; charset=utf-8", fmt.Sprintf(`{"n": %d}`, i))
					if status != 201 || body != fmt.Sprintf(`{"you":{"n": %d}}`, i) || header.Get("Content-Type") != "application/json" ||
						header.Get("X-Target") != fmt.Sprintf("/stock/%d?x=%%20", i) || header.Get("X-Host") != strings.TrimPrefix(base, "http://") {
						t.Errorf("%d: %d, %q, %v", i, status, body, header)
					}
				})
			}
			kit.Eventually(t, "the items wait", func() bool { return w.Queued("k") == 3 })
			wg.Go(func() {
				if status, _, body := post(t, client, base+"/", "text/plain", "{}"); status != 200 || body != "POST alone" {
					t.Errorf("no JSON: %d, %q", status, body)
				}
			})
			wg.Wait()
			wait()
			if sizes, single := app.seen(); len(sizes) != 1 || sizes[0] != 3 || single != 1 {
				t.Errorf("batches of %v, %d alone", sizes, single)
			}
			for _, body := range []string{`{"a":`, "\"\xff\"", strings.Repeat("[", 100) + strings.Repeat("]", 100), strings.Repeat("1", 100), `"\ud800"`, `{"buy":1e999}`} {
				if status, _, got := post(t, client, base+"/", "application/json", body); status != 400 {
					t.Errorf("body %.20q: %d, %q", body, status, got)
				}
			}
			for _, own := range []string{"/batch", "/batch?x=1", "/%62atch", "/Batch", "/x/../batch/", "/batch;x"} {
				for _, of := range []string{"text/plain", "application/json"} {
					if status, _, got := post(t, client, base+own, of, `[{}]`); status != 404 {
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
			w := workertest.New(t, 16).StartReady(func(cfg *worker.Config) { cfg.Batch = "/batch" })
			s := workertest.Serve(t, kit.Must(w.Sidecar(kit.Must(url.Parse(workertest.Serve(t, app).URL)))))
			wait := holdKey(t, w, 2)
			var wg sync.WaitGroup
			for i, want := range tt.want {
				kit.Eventually(t, "the one before waits", func() bool { return w.Queued("k") == i })
				wg.Go(func() {
					status, header, body := post(t, http.DefaultClient, s.URL, "application/json", `1`)
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
		w := workertest.New(t, 16).Start(func(c *worker.Config) { c.App = app })
		if _, err := w.Sidecar(kit.Must(url.Parse("http://127.0.0.1:1"))); err == nil {
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
			server := workertest.Serve(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
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
			w := workertest.New(t, 16).StartReady(func(cfg *worker.Config) { cfg.Batch, cfg.AbandonedTimeout = "/batch", abandoned })
			s := workertest.Serve(t, kit.Must(w.Sidecar(kit.Must(url.Parse(server.URL)))))
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
			go func() { next <- w.Do(t.Context(), "k", ok) }()
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
