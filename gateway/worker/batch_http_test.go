package worker_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// sale is an item of the tests' batches.
type sale struct {
	SKU, Client, Key string
	Size             int
}

// shop returns what a service serves: sales in batches, and all else with the key
// held. seen, if not nil, is called for each batch.
func shop(t *testing.T, w *worker.Worker, seen func(items []*worker.Item[sale, int])) *http.ServeMux {
	batcher, err := worker.NewBatcher(w, worker.BatchConfig{}, func(x gateway.Execution, items []*worker.Item[sale, int]) error {
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
func inFront(t *testing.T, c *site.Site, w *site.Worker, h http.Handler) {
	w.Listen(t, h)
}

func newSite(t *testing.T, c *site.Site) *site.Front {
	gate := c.Join("router")
	return site.ThroughServer(t, site.NewRouter(t, router.Config{Members: gate}))
}

// TestBatchHandler: in one mux beside handlers that hold their key, straight to the
// worker and over the link.
func TestBatchHandler(t *testing.T) {
	for _, way := range []string{"HTTP", "link"} {
		t.Run(way, func(t *testing.T) {
			c := site.New(t, 16)
			w := c.StartReady()
			seen := make(chan []*worker.Item[sale, int], 100)
			h := w.Handler(shop(t, w.Worker, func(items []*worker.Item[sale, int]) { seen <- items }))
			var base string
			client := http.DefaultClient
			if way == "HTTP" {
				base = site.Serve(t, h).URL
			} else {
				inFront(t, c, w, h)
				s := newSite(t, c)
				base, client = s.URL, s.HTTP
			}
			wait := w.HoldKey(t, 3)
			var wg sync.WaitGroup
			for _, sends := range []string{"rich", "poor", "rich again"} {
				wg.Go(func() {
					status, header, body := site.Post(t, client, base+"/stock/42?x=1", "text/plain", sends)
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
			if status, _, body := site.Post(t, client, base+"/stock/42", "text/plain", "bad"); status != 400 || body != "the request cannot be handled: bad sale\n" {
				t.Errorf("bad item: %d, %q", status, body)
			}
			if status, _, body := site.Post(t, client, base+"/stock/42", "text/plain", strings.Repeat("x", 1<<20+1)); status != 413 {
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
	c := site.New(t, 16)
	other := c.StartReady()
	w := c.Start(func(cfg *worker.Config) { cfg.Members = frozen{cfg.Members} })
	ran := false
	mux := shop(t, w.Worker, func([]*worker.Item[sale, int]) { ran = true })
	s := site.Serve(t, w.Handler(mux))
	kit.Eventually(t, "the worker knows the owner", func() bool {
		status, header, _ := site.Post(t, http.DefaultClient, s.URL+"/stock/42", "text/plain", "rich")
		return status == 421 && header.Get("Keyway-Owner") == other.Incarnation() && header.Get("Keyway-Epoch") != ""
	})
	req := kit.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/stock/42", strings.NewReader("rich")))
	if res, body := kit.Do(t, http.DefaultClient, req); res.StatusCode != 400 || !strings.Contains(body, gateway.HeaderKey) {
		t.Errorf("no key: %d, %q", res.StatusCode, body)
	}
	nested := site.Serve(t, other.Handler(shop(t, other.Worker, func([]*worker.Item[sale, int]) { ran = true })))
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
func heldMember(t *testing.T, w *site.Worker) (hash string, err error) {
	s := site.Serve(t, w.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
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
	w := site.New(t, 16).StartReady()
	s := site.Serve(t, w.Handler(shop(t, w.Worker, func([]*worker.Item[sale, int]) { panic("secret") })))
	if status, _, body := site.Post(t, http.DefaultClient, s.URL+"/stock/42", "text/plain", "rich"); status != 500 || !strings.Contains(body, "may have run") || strings.Contains(body, "secret") {
		t.Errorf("%d, %q", status, body)
	}
}

// TestBatchHandlerMoves: while partitions move each request runs once, also one
// whose body was read before the worker found that the key is another's.
func TestBatchHandlerMoves(t *testing.T) {
	c := site.New(t, 16)
	var mu sync.Mutex
	ran := map[string]int{}
	workers := map[*site.Worker]bool{}
	start := func() *site.Worker {
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
				res, err := s.HTTP.Do(req)
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
	w := site.New(t, 16).StartReady()
	mux := shop(t, w.Worker, nil)
	s := site.Serve(t, w.Handler(http.HandlerFunc(mux.ServeHTTP)))
	if status, _, body := site.Post(t, http.DefaultClient, s.URL+"/stock/42", "text/plain", "rich"); status != 200 || body != "sold with 0" {
		t.Errorf("%d, %q", status, body)
	}
}
