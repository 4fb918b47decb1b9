package trial

import (
	"context"
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
	key := r.Header.Get(HeaderKey)
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
func tryFake(t *testing.T, exclusive bool, enough func(total int, found [Kinds]int) bool) *Report {
	t.Helper()
	o := NewObserver()
	server := httptest.NewServer(&fake{exclusive: exclusive, apps: []http.Handler{o.App("w1#1"), o.App("w2#1")}})
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m := Mix{Keys: 50, Hot: 2, HotShare: 0.5, Work: 2 * time.Millisecond, Long: 5 * time.Millisecond, LongShare: 0.01, Posts: 0.5}
	l := &Load{Dial: To(strings.TrimPrefix(server.URL, "http://")), Now: o.Now, Clients: 16, Jobs: func(i int) func() (Job, time.Duration) {
		rng := rand.New(rand.NewPCG(1, uint64(i)))
		return func() (Job, time.Duration) {
			if total, _, found := o.Counts(); enough(total, found) {
				cancel()
			}
			return m.Next(rng), 0
		}
	}}
	l.Run(ctx)
	r := &Report{trial: &Trial{}, requests: l.Requests()}
	r.check(o.Record())
	return r
}

func TestExclusionPasses(t *testing.T) {
	r := tryFake(t, true, func(total int, _ [Kinds]int) bool { return total >= 3000 })
	for _, v := range r.Violations {
		t.Error(v)
	}
	if r.Operations < 2000 {
		t.Errorf("only %d operations", r.Operations)
	}
}

func TestMissingExclusionIsCaught(t *testing.T) {
	r := tryFake(t, false, func(_ int, found [Kinds]int) bool {
		return found[Overlap] > 0 && found[LostUpdate] > 0
	})
	for _, k := range []FindingKind{Overlap, LostUpdate} {
		if r.Found[k] == 0 {
			t.Errorf("no %s found", k)
		}
	}
	porcupineToo := false
	for _, why := range r.Bad {
		porcupineToo = porcupineToo || strings.HasPrefix(why, "porcupine: Illegal")
	}
	if !porcupineToo {
		t.Errorf("porcupine found nothing: %v", r.Bad)
	}
	var b strings.Builder
	for key := range r.suspects {
		r.dump(&b, key)
	}
	if !strings.Contains(b.String(), "begin") || !strings.Contains(b.String(), "client sends") {
		t.Errorf("the dump is %q", b.String())
	}
}

func TestStatusesAreListed(t *testing.T) {
	if got := statuses(map[int]int{http.StatusBadGateway: 2, NoAnswer: 1, 418: 3}); got != "1 × no answer, 3 × 418, 2 × 502" {
		t.Error(got)
	}
	if got := statuses(nil); got != "none" {
		t.Error(got)
	}
}
