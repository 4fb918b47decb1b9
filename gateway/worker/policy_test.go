package worker_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/policy"
	"github.com/keyway-go/keyway/internal/test/site"
)

// askBy sends h a request for a key, as a router does whose route has that policy.
func askBy(t *testing.T, h http.Handler, key string, p policy.Policy) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
	r.Header.Set(gateway.HeaderKey, url.PathEscape(key))
	if b := p.Append(nil); len(b) > 0 {
		r.Header.Set(hop.HeaderPolicy, string(policy.AppendText(nil, b)))
	}
	out := httptest.NewRecorder()
	h.ServeHTTP(out, r)
	return out
}

// A route's limits stand in place of the worker's own, for its requests alone.
func TestLimitsOfARoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).StartOwner(func(cfg *worker.Config) {
			cfg.MaxWait, cfg.Timeout, cfg.QueuePerKey = 5*time.Second, 10*time.Second, 2
		})
		slow := w.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
		for _, tt := range []struct {
			p    policy.Policy
			want time.Duration // of an execution, to a tenth of a second
		}{
			{policy.Policy{}, 10 * time.Second},
			{policy.Policy{Route: "r"}, 10 * time.Second},
			{policy.Policy{Timeout: 2 * time.Second}, 2 * time.Second},
			{policy.Policy{Timeout: 20 * time.Second}, 20 * time.Second},
		} {
			began := time.Now()
			answer := askBy(t, slow, "k", tt.p)
			if took := time.Since(began); answer.Code != http.StatusGatewayTimeout || took < tt.want || took > tt.want+200*time.Millisecond {
				t.Errorf("%+v: %d after %v", tt.p, answer.Code, took)
			}
		}
		quick := w.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		_ = w.Do(t.Context(), "k", func(gateway.Execution) error {
			for _, tt := range []struct {
				p    policy.Policy
				code int
				want time.Duration
			}{
				{policy.Policy{}, 503, 5 * time.Second},
				{policy.Policy{MaxWait: time.Second}, 503, time.Second},
				{policy.Policy{MaxWait: 15 * time.Second}, 503, 15 * time.Second},
			} {
				began := time.Now()
				answer := askBy(t, quick, "k", tt.p)
				if took := time.Since(began); answer.Code != tt.code || took != tt.want || answer.Header().Get("Retry-After") == "" {
					t.Errorf("%+v: %d after %v", tt.p, answer.Code, took)
				}
			}
			go askBy(t, quick, "k", policy.Policy{})
			synctest.Wait()
			if answer := askBy(t, quick, "k", policy.Policy{QueuePerKey: 1}); answer.Code != http.StatusTooManyRequests {
				t.Errorf("a route that lets one wait has two: %d", answer.Code)
			}
			go askBy(t, quick, "k", policy.Policy{})
			synctest.Wait()
			if answer := askBy(t, quick, "k", policy.Policy{}); answer.Code != http.StatusTooManyRequests {
				t.Errorf("three wait: %d", answer.Code)
			}
			if answer := askBy(t, quick, "k", policy.Policy{QueuePerKey: 3}); answer.Code != http.StatusServiceUnavailable {
				t.Errorf("a route that lets three wait has two: %d", answer.Code)
			}
			return nil
		})
	})
}

// What a router of another version asks for is refused, and does not run.
func TestPoliciesOfOtherVersions(t *testing.T) {
	w := site.New(t, 16).StartReady()
	h := w.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it runs") }))
	good := (&policy.Policy{Timeout: time.Second}).Append(nil)
	for _, text := range []string{"!", string(policy.AppendText(nil, append(good, 1))), string(policy.AppendText(nil, []byte{200}))} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		r.Header.Set(gateway.HeaderKey, "k")
		r.Header.Set(hop.HeaderPolicy, text)
		out := httptest.NewRecorder()
		h.ServeHTTP(out, r)
		if out.Code != http.StatusServiceUnavailable || !strings.Contains(out.Body.String(), "version") || out.Header().Get("Keyway-Refused") != "" {
			t.Errorf("%q: %d %s", text, out.Code, out.Body)
		}
	}
}

// A key has its route's burst at once, then one request in each interval, and each
// that is refused is told the second from which on another one runs.
func TestRateOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).StartOwner()
		ran := map[string]int{}
		h := w.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { ran[r.Header.Get(gateway.HeaderKey)]++ }))
		p := policy.Policy{Route: "orders", Rate: policy.Rate{PerSecond: 0.4, Burst: 3}}
		expect := func(key string, p policy.Policy, code int, retryAfter string) {
			t.Helper()
			answer := askBy(t, h, key, p)
			if got := answer.Header().Get("Retry-After"); answer.Code != code || got != retryAfter || answer.Header().Get("Keyway-Refused") != "" {
				t.Errorf("at %v: %d, Retry-After %q, %v; want %d, %q", time.Now().Format("05.000"), answer.Code, got, answer.Header(), code, retryAfter)
			}
		}
		for range 3 {
			expect("k", p, 200, "")
		}
		expect("k", p, 429, "3") // 2.5 s
		expect("other key", p, 200, "")
		other := p
		other.Route = "other"
		expect("k", other, 200, "")
		expect("k", policy.Policy{}, 200, "")
		time.Sleep(2500*time.Millisecond - 1)
		expect("k", p, 429, "1")
		time.Sleep(time.Nanosecond)
		expect("k", p, 200, "")
		expect("k", p, 429, "3")
		time.Sleep(time.Hour)
		for range 3 {
			expect("k", p, 200, "")
		}
		expect("k", p, 429, "3")
		if ran["k"] != 3+1+1+1+3 || ran["other%20key"] != 1 {
			t.Errorf("%v", ran)
		}
	})
}

// A request that does not run takes nothing of its key's rate.
func TestRateCountsWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).StartOwner()
		h := w.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		p := policy.Policy{MaxWait: time.Second, Rate: policy.Rate{PerSecond: 1.0 / 3600, Burst: 2}}
		_ = w.Do(t.Context(), "k", func(gateway.Execution) error {
			for range 4 {
				if answer := askBy(t, h, "k", p); answer.Code != http.StatusServiceUnavailable {
					t.Errorf("a key that is not free: %d", answer.Code)
				}
			}
			return nil
		})
		for i, want := range []int{200, 200, 429} {
			if answer := askBy(t, h, "k", p); answer.Code != want {
				t.Errorf("request %d: %d, want %d", i, answer.Code, want)
			}
		}
	})
}

// The rate of a key is its owner's: it starts anew at the next one, and when the key
// comes back, and another worker refuses a request before it counts.
func TestRateMovesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 1)
		first := c.StartOwner()
		p := policy.Policy{Rate: policy.Rate{PerSecond: 1.0 / 3600, Burst: 1}}
		nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
		codes := func(w *site.Worker) string {
			h := w.Handler(nothing)
			return fmt.Sprint(askBy(t, h, "k", p).Code, askBy(t, h, "k", p).Code)
		}
		if got := codes(first); got != "200 429" {
			t.Errorf("the first owner: %s", got)
		}
		other := c.Start()
		time.Sleep(time.Minute)
		for first.Serving() == 1 { // until the ring gives it to another one
			other = c.Start()
			time.Sleep(time.Minute)
		}
		if got := codes(first); got != "421 421" {
			t.Errorf("the first owner, once the key is another's: %s", got)
		}
		if got := codes(other); got != "200 429" {
			t.Errorf("the next owner: %s", got)
		}
		if err := other.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got := codes(first); got != "200 429" {
			t.Errorf("the first owner, when the key is back: %s", got)
		}
	})
}
