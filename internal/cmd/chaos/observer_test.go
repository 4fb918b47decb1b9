package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// fake stands for router and workers. Without exclusion it is what hashing by
// a stale view would be.
type fake struct {
	exclusive bool
	apps      []http.Handler
	tokens    atomic.Int64
	keys      sync.Map // of *sync.Mutex
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get(headerKey)
	if f.exclusive {
		mu, _ := f.keys.LoadOrStore(key, new(sync.Mutex))
		mu.(*sync.Mutex).Lock()
		defer mu.(*sync.Mutex).Unlock()
	}
	r.Header.Set("Keyway-Key", url.PathEscape(key))
	r.Header.Set("Keyway-Token", strconv.FormatInt(f.tokens.Add(1), 10))
	r.Header.Set("Keyway-Partition", "1")
	f.apps[rand.IntN(len(f.apps))].ServeHTTP(w, r)
}

// tryFake runs a load against a fake until enough is true of the observer.
func tryFake(t *testing.T, exclusive bool, enough func(total int, found [kinds]int) bool) *report {
	t.Helper()
	o := newObserver()
	server := httptest.NewServer(&fake{exclusive: exclusive, apps: []http.Handler{o.app("w1#1"), o.app("w2#1")}})
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m := mix{Keys: 50, Hot: 2, HotShare: 0.5, Work: 2 * time.Millisecond, Long: 5 * time.Millisecond, LongShare: 0.01, Posts: 0.5}
	l := &load{target: strings.TrimPrefix(server.URL, "http://"), now: o.now, clients: 16, jobs: func(i int) func() (job, time.Duration) {
		rng := rand.New(rand.NewPCG(1, uint64(i)))
		return func() (job, time.Duration) {
			if total, _, found := o.counts(); enough(total, found) {
				cancel()
			}
			return m.next(rng), 0
		}
	}}
	l.run(ctx)
	r := &report{seen: o.record(), requests: l.requests()}
	r.check(newJudge(config{}, nil, r.seen, r.requests, nil), time.Minute)
	return r
}

func TestExclusionPasses(t *testing.T) {
	r := tryFake(t, true, func(total int, _ [kinds]int) bool { return total >= 3000 })
	for _, v := range r.violations {
		t.Error(v)
	}
	if r.operations < 2000 {
		t.Errorf("only %d operations", r.operations)
	}
}

func TestMissingExclusionIsCaught(t *testing.T) {
	r := tryFake(t, false, func(_ int, found [kinds]int) bool { return found[overlap] > 0 && found[lostUpdate] > 0 })
	for _, k := range []findingKind{overlap, lostUpdate} {
		if n, _ := r.count(k); n == 0 {
			t.Errorf("no %s found", k)
		}
	}
	porcupineToo := false
	for _, why := range r.bad {
		porcupineToo = porcupineToo || strings.HasPrefix(why, "porcupine: Illegal")
	}
	if !porcupineToo {
		t.Errorf("porcupine found nothing: %v", r.bad)
	}
	var b strings.Builder
	r.dump(&b, r.suspects()[0])
	if !strings.Contains(b.String(), "begin") || !strings.Contains(b.String(), "client sends") {
		t.Errorf("the dump is %q", b.String())
	}
}

func exec(o *observer, number, token int64, worker string) (*execution, int64, bool) {
	x := &execution{Request: number, Key: "k", Worker: worker, Token: token}
	read, ok := o.begin(x)
	return x, read, ok
}

func TestObserverFindings(t *testing.T) {
	o := newObserver()
	a, readA, _ := exec(o, 1, 10, "w1")
	b, readB, _ := exec(o, 2, 11, "w2")
	o.write(b, readB)
	o.end(b, written)
	o.write(a, readA)
	o.end(a, written)
	if _, _, ok := exec(o, 3, 11, "w1"); ok {
		t.Error("a token was accepted twice")
	}
	c, _, _ := exec(o, 2, 12, "w1")
	o.end(c, aborted)
	total, running, found := o.counts()
	if total != 4 || running != 0 {
		t.Errorf("%d executions, %d of them running", total, running)
	}
	if want := [kinds]int{overlap: 1, regression: 1, lostUpdate: 1, repeated: 1}; found != want {
		t.Errorf("found %v, want %v", found, want)
	}
}

func TestExecutionEndsWithItsConnection(t *testing.T) {
	o := newObserver()
	defer o.close()
	url, err := o.listen("w1#1")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{headerKey: "a/b", headerRequest: "7", headerWork: "1h", "Keyway-Key": "a%2Fb", "Keyway-Token": "9", "Keyway-Partition": "3"} {
		req.Header.Set(name, value)
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		if res, err := http.DefaultClient.Do(req); err == nil {
			res.Body.Close()
		}
	}()
	awaitRunning(t, o, 1)
	cancel()
	<-sent
	awaitRunning(t, o, 0)
	if x := o.record().requests[7]; x == nil || x.Outcome != aborted || x.Worker != "w1#1" || x.Partition != 3 {
		t.Errorf("recorded %+v", x)
	}
}

func awaitRunning(t *testing.T, o *observer, want int) {
	t.Helper()
	for ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second); ; {
		total, running, _ := o.counts()
		if total > 0 && running == want {
			cancel()
			return
		}
		if !sleep(ctx, time.Millisecond) {
			t.Fatalf("%d run, want %d", running, want)
		}
	}
}

func TestForeignHeadersAreFound(t *testing.T) {
	for _, broken := range []string{"Keyway-Key", "Keyway-Token", "Keyway-Partition", headerRequest, headerWork} {
		o := newObserver()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		for _, name := range []string{"Keyway-Key", "Keyway-Token", "Keyway-Partition", headerRequest, headerKey} {
			r.Header.Set(name, "1")
		}
		r.Header.Set(headerWork, "0s")
		r.Header.Set(broken, "x")
		w := httptest.NewRecorder()
		o.app("w1").ServeHTTP(w, r)
		if _, _, found := o.counts(); found[mixedUp] != 1 || w.Code != http.StatusBadRequest {
			t.Errorf("%s: x was answered %d", broken, w.Code)
		}
	}
}

func TestMixFollowsItsSeed(t *testing.T) {
	jobs := func(seed uint64) string {
		rng := rand.New(rand.NewPCG(seed, 0))
		m, hot, all := newMix(rng, 10*time.Second), 0, ""
		for range 1000 {
			j := m.next(rng)
			if strings.HasPrefix(j.key, "hot-") {
				hot++
			}
			if j.work > max(m.Long, m.SlowWork) || j.work < 0 {
				t.Errorf("work of %v", j.work)
			}
			all += fmt.Sprint(j)
		}
		if hot < 50 || hot > 500 {
			t.Errorf("seed %d: %d of 1000 requests are for hot keys", seed, hot)
		}
		return all
	}
	if first, again := jobs(1), jobs(1); first != again || first == jobs(2) {
		t.Error("the mix is not a function of the seed")
	}
}

func TestAnotherClientStepsInForOneThatWaits(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answer := make(chan struct{})
	var others atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(headerRequest) == "1" {
			<-answer
		} else if others.Add(1) == 10 {
			close(answer)
			cancel()
		}
		fmt.Fprint(w, "1 1")
	}))
	defer server.Close()
	l := &load{target: strings.TrimPrefix(server.URL, "http://"), now: newObserver().now, clients: 1,
		jobs: func(int) func() (job, time.Duration) { return func() (job, time.Duration) { return job{key: "k"}, 0 } }}
	l.run(ctx)
	if all := l.requests(); len(all) < 11 || !all[0].ok() {
		t.Errorf("%d requests, the first of which was answered %d", len(all), all[0].Status)
	}
}
