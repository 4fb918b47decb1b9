package lockservice_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/lockservice"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// lockSite is a lock service of a site, to which requests are made without a connection.
type lockSite struct {
	*site.Site
	router  *router.Router
	service *lockservice.Service
}

func newLockSite(t *testing.T, change ...func(*router.Config)) *lockSite {
	s := &lockSite{Site: site.NewInBubble(t)}
	member := s.Join("router")
	cfg := router.Config{Members: member, Dial: s.Network.Dial, Keys: kit.KeySources(t, "header:X-Key")}
	for _, f := range change {
		f(&cfg)
	}
	s.router = kit.Must(router.New(cfg))
	t.Cleanup(func() { s.router.Close() })
	s.service = lockservice.New(s.router, lockservice.Config{MaxWaiting: cfg.MaxHeld, TracerProvider: cfg.TracerProvider, TraceKeys: cfg.TraceKeys})
	return s
}

// lockReply is an answer of a lock service.
type lockReply struct {
	code   int
	header http.Header
	body   string

	Key     string
	Lease   string
	Token   int64
	Tokens  map[string]int64
	TTL     int64 `json:"ttl_ms"`
	Holder  string
	Kind    string
	Held    bool
	Waiting int
	Readers int
	Type    string
}

// ask makes a request from this machine. A name and a value of a field may follow.
func (s *lockSite) ask(ctx context.Context, method, target string, field ...string) (a lockReply) {
	s.T.Helper()
	r := httptest.NewRequestWithContext(ctx, method, "http://localhost"+target, nil)
	r.RemoteAddr = "127.0.0.1:4711"
	for i := 0; i < len(field); i += 2 {
		r.Header.Add(field[i], field[i+1])
	}
	w := httptest.NewRecorder()
	s.service.ServeHTTP(w, r)
	return replyOf(s.T, w.Code, w.Header(), w.Body.String())
}

func replyOf(t testing.TB, code int, h http.Header, body string) (a lockReply) {
	t.Helper()
	if strings.HasSuffix(h.Get("Content-Type"), "json") {
		if err := json.Unmarshal([]byte(body), &a); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
	a.code, a.header, a.body = code, h, body
	return a
}

// must is ask for an answer of that status.
func (s *lockSite) must(code int, method, target string, field ...string) lockReply {
	s.T.Helper()
	a := s.ask(s.T.Context(), method, target, field...)
	if a.code != code {
		s.T.Errorf("%s %s: %d %s, want %d", method, target, a.code, a.body, code)
	}
	return a
}

func TestLockService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLockSite(t)
		w := s.StartServing()
		if a := s.must(200, "GET", "/v1/locks/k"); a.Held || a.Key != "k" || a.Kind != "" {
			t.Errorf("a free key: %s", a.body)
		}
		lock := s.must(200, "POST", "/v1/locks/k?ttl=4s&label=cron-7")
		if lock.Key != "k" || lock.Token <= 0 || lock.TTL != 4000 || len(lock.Lease) != 32 {
			t.Errorf("locked: %s", lock.body)
		}
		time.Sleep(time.Second)
		if a := s.must(423, "POST", "/v1/locks/k"); a.Holder != "cron-7" || a.Kind != "lock" || a.TTL != 3000 || a.Waiting != 0 || a.header.Get("Retry-After") != "1" || a.Type != "urn:keyway:problem:lock-held" {
			t.Errorf("who does not get it: %s %v", a.body, a.header)
		}
		if a := s.must(200, "GET", "/v1/locks/k"); !a.Held || a.Holder != "cron-7" || a.Token != lock.Token || a.TTL != 3000 {
			t.Errorf("its state: %s", a.body)
		}
		if w.IsFree(t, "k") {
			t.Error("a key that is locked is free at its owner")
		}
		if a := s.must(200, "PUT", "/v1/locks/k?ttl=8s&lease="+lock.Lease); a.Token != lock.Token || a.TTL != 8000 || a.Lease != lock.Lease {
			t.Errorf("extended: %s", a.body)
		}
		time.Sleep(7 * time.Second)
		if w.IsFree(t, "k") {
			t.Error("a lock that was extended has ended")
		}
		s.must(204, "DELETE", "/v1/locks/k?lease="+lock.Lease)
		if !w.IsFree(t, "k") {
			t.Error("a key that was unlocked is not free")
		}
		s.must(204, "DELETE", "/v1/locks/k?lease="+lock.Lease)
		s.must(410, "PUT", "/v1/locks/k?lease="+lock.Lease)
		next := s.must(200, "POST", "/v1/locks/k")
		if next.Token <= lock.Token || next.Lease == lock.Lease || next.TTL < 7000 || next.TTL > 10000 {
			t.Errorf("token %d and lease %s follow %d and %s, for %d ms", next.Token, next.Lease, lock.Token, lock.Lease, next.TTL)
		}
		s.must(204, "DELETE", "/v1/locks/k?lease="+lock.Lease)
		time.Sleep(kit.TTL)
		if !w.IsFree(t, "k") {
			t.Error("a lock that nobody renews does not end")
		}
		_ = w.Do(t.Context(), "k", func(x gateway.Execution) error {
			if a := s.must(423, "POST", "/v1/locks/k"); a.Kind != "request" || a.Holder != "" || a.TTL != 0 {
				t.Errorf("where an execution has the key: %s", a.body)
			}
			return nil
		})
	})
}

// Whatever is wrong with a request is said, and nothing is overlooked.
func TestLockServiceRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLockSite(t)
		s.StartServing()
		for _, tt := range []struct {
			code           int
			method, target string
			field          []string
			says           string
		}{
			{404, "GET", "/", nil, "/openapi.yaml"},
			{404, "POST", "/v1/lock/k", nil, "no-route"},
			{405, "GET", "/v1/locks?key=a", nil, "other-method"},
			{405, "PATCH", "/v1/locks/k", nil, "other-method"},
			{400, "POST", "/v1/locks", nil, "names no key"},
			{400, "POST", "/v1/locks/", nil, "no-key"},
			{400, "POST", "/v1/locks/a/b", nil, "%2F"},
			{400, "POST", "/v1/locks/%2e%2e", nil, "bad-key"},
			{400, "POST", "/v1/locks/%01", nil, "bad-key"},
			{400, "POST", "/v1/locks/" + strings.Repeat("k", 4097), nil, "bad-key"},
			{400, "POST", "/v1/locks?key=a&key=", nil, "no-key"},
			{400, "POST", "/v1/locks?" + strings.TrimPrefix(manyKeys(65), "&"), nil, "65 keys, the limit is 64"},
			{400, "POST", "/v1/locks/a?key=b", nil, "a key in the path and one in the query"},
			{400, "POST", "/v1/locks/k?tll=5s", nil, `no parameter \"tll\"; it takes key, ttl, wait, label`},
			{400, "POST", "/v1/locks/k?lease=" + strings.Repeat("0", 32), nil, "no parameter"},
			{400, "POST", "/v1/locks/k?ttl=5", nil, "ttl=\\\"5\\\": want a time such as 30s"},
			{400, "POST", "/v1/locks/k?ttl=-5s", nil, "want a time"},
			{400, "POST", "/v1/locks/k?ttl=1us", nil, "want 10ms at least"},
			{400, "POST", "/v1/locks/k?ttl=5s&ttl=6s", nil, "more than once"},
			{400, "POST", "/v1/locks/k?ttl=%zz", nil, "query cannot be read"},
			{400, "POST", "/v1/locks/k?label=" + strings.Repeat("l", 65), nil, "64 at most"},
			{400, "POST", "/v1/locks/k", []string{"Idempotency-Key", ""}, "want one Idempotency-Key"},
			{400, "POST", "/v1/locks/k", []string{"Idempotency-Key", "a", "Idempotency-Key", "b"}, "want one Idempotency-Key"},
			{400, "DELETE", "/v1/locks/k", nil, "want the lease"},
			{400, "DELETE", "/v1/locks/k?lease=0123", nil, "want the lease"},
			{400, "DELETE", "/v1/locks/k?lease=" + strings.Repeat("0", 34), nil, "want the lease"},
			{400, "DELETE", "/v1/locks/k?lease=" + strings.Repeat("0", 32), []string{"Idempotency-Key", "a"}, "want one of them"},
		} {
			a := s.must(tt.code, tt.method, tt.target, tt.field...)
			if !strings.Contains(a.body, tt.says) || a.header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s %.80s: %s %s, want %s", tt.method, tt.target, a.header.Get("Content-Type"), a.body, tt.says)
			}
		}
		if s.must(200, "POST", "/v1/locks/k").Token == 0 {
			t.Error("a key is held in the end")
		}
	})
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "&key=k%02d", i)
	}
	return b.String()
}

// Only those may ask for locks who have the token, or without one are on this machine; a page of
// another site may not, though it is shown on this machine.
func TestTrapLockServiceAccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLockSite(t)
		s.StartServing()
		try := func(service *lockservice.Service, remote string, field ...string) int {
			r := httptest.NewRequestWithContext(t.Context(), "POST", "http://localhost/v1/locks/k", nil)
			r.RemoteAddr = remote
			for i := 0; i < len(field); i += 2 {
				if r.Header.Set(field[i], field[i+1]); field[i] == "Host" {
					r.Host = field[i+1]
				}
			}
			w := httptest.NewRecorder()
			service.ServeHTTP(w, r)
			if w.Code == 200 {
				s.must(204, "DELETE", "/v1/locks/k?lease="+replyOf(t, w.Code, w.Header(), w.Body.String()).Lease)
			}
			return w.Code
		}
		secret := lockservice.New(s.router, lockservice.Config{Token: "s3cret"})
		const here, there = "127.0.0.1:1", "192.0.2.1:1"
		for i, got := range []struct{ got, want int }{
			{try(s.service, here), 200},
			{try(s.service, there), 403},
			{try(s.service, there, "Authorization", "Bearer "), 403},
			{try(s.service, here, "Sec-Fetch-Site", "cross-site"), 403},
			{try(s.service, here, "Host", "evil.example", "Origin", "http://evil.example"), 403},
			{try(lockservice.New(s.router, lockservice.Config{Hosts: []string{"locks.example"}}), here, "Host", "locks.example:8090"), 200},
			{try(secret, there, "Host", "evil.example", "Authorization", "Bearer s3cret"), 200},
			{try(secret, here), 401},
			{try(secret, there, "Authorization", "Bearer s3cre"), 401},
			{try(secret, there, "Authorization", "Bearer s3cret"), 200},
			{try(secret, there, "Authorization", "Bearer s3cret", "Sec-Fetch-Site", "cross-site"), 403},
		} {
			if got.got != got.want {
				t.Errorf("case %d: %d, want %d", i, got.got, got.want)
			}
		}
	})
}

// A request waits in the key's queue for as long as it says. What it then holds, it holds for as
// long as it reads, however long it has waited.
func TestLockServiceWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLockSite(t)
		w := s.StartServing()
		lock := s.must(200, "POST", "/v1/locks/k?ttl=9s&label=first")
		began := time.Now()
		if a := s.must(423, "POST", "/v1/locks/k?wait=2s"); a.Holder != "first" {
			t.Errorf("who has waited: %s", a.body)
		}
		if d := time.Since(began); d != 2*time.Second {
			t.Errorf("waited %v, want 2s", d)
		}
		order := make(chan string, 3)
		for i := range 3 {
			go func() {
				a := s.must(200, "POST", fmt.Sprintf("/v1/locks/k?wait=20s&ttl=5s&label=w%d", i))
				if a.TTL < 4900 || a.TTL > 5000 {
					t.Errorf("w%d: %s", i, a.body)
				}
				order <- fmt.Sprint("w", i)
				time.Sleep(time.Duration(a.TTL-10) * time.Millisecond)
				if w.IsFree(t, "k") {
					t.Errorf("w%d does not hold the key for as long as it read", i)
				}
				s.must(204, "DELETE", "/v1/locks/k?lease="+a.Lease)
			}()
			synctest.Wait()
		}
		s.must(204, "DELETE", "/v1/locks/k?lease="+lock.Lease)
		for i := range 3 {
			if got, want := <-order, fmt.Sprint("w", i); got != want {
				t.Errorf("%s has come before %s", got, want)
			}
		}
		synctest.Wait()
		time.Sleep(kit.TTL)
		if !w.IsFree(t, "k") {
			t.Error("the key is held in the end")
		}
	})
}

// A client that leaves while it waits gives up its place.
func TestTrapLockServiceClientLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, field := range [][]string{nil, {"Idempotency-Key", "x"}} {
			s := newLockSite(t)
			w := s.StartServing()
			lock := s.must(200, "POST", "/v1/locks/k")
			ctx, leave := context.WithCancel(t.Context())
			done := make(chan int)
			go func() { done <- s.ask(ctx, "POST", "/v1/locks/k?wait=20s", field...).code }()
			synctest.Wait()
			if n := w.Queued("k"); n != 1 {
				t.Fatalf("%d wait", n)
			}
			leave()
			<-done
			synctest.Wait()
			if n := w.Queued("k"); n != 0 {
				t.Errorf("%d wait for a client that has left", n)
			}
			s.must(204, "DELETE", "/v1/locks/k?lease="+lock.Lease)
			if !w.IsFree(t, "k") {
				t.Error("a client that has left holds the key")
			}
		}
	})
}

// A grant for a client that has left meanwhile is released, unless the client may come back for it.
func TestTrapLockServiceGrantForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLockSite(t)
		w := s.StartServing()
		s.Network.Delay(":acquire", 100*time.Millisecond)
		for _, chosen := range []bool{false, true} {
			var field []string
			if chosen {
				field = []string{"Idempotency-Key", "x"}
			}
			ctx, leave := context.WithCancel(t.Context())
			time.AfterFunc(50*time.Millisecond, leave)
			s.ask(ctx, "POST", "/v1/locks/k", field...)
			time.Sleep(time.Second)
			switch free := w.IsFree(t, "k"); {
			case !chosen && !free:
				t.Error("nobody can unlock the key")
			case chosen && free:
				t.Error("who comes back for the key may have been told by another router that it is his")
			}
		}
		time.Sleep(2 * kit.TTL)
		if !w.IsFree(t, "k") {
			t.Error("a key that its client has not come back for is held")
		}
	})
}

// A request for several keys, one of which it does not get, gives those back that it has made locks of,
// also where the client may come back, but not what the same request has found that came another time.
func TestTrapLockServiceGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLockSite(t)
		w := s.StartServing()
		last := s.must(200, "POST", "/v1/locks/c")
		try := func(code int, wait string) {
			s.must(code, "POST", "/v1/locks?key=a&key=b&key=c&wait="+wait, "Idempotency-Key", "x")
		}
		if try(423, "0s"); !w.IsFree(t, "a") || !w.IsFree(t, "b") {
			t.Error("keys are held for a request that has not got all of them")
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			try(503, "8s") // which the next one takes the place of
		}()
		synctest.Wait()
		go func() {
			time.Sleep(time.Second)
			s.must(204, "DELETE", "/v1/locks/c?lease="+last.Lease)
		}()
		try(200, "8s")
		if <-done; w.IsFree(t, "a") || w.IsFree(t, "b") || w.IsFree(t, "c") {
			t.Error("the request that came first has freed what the other one has found")
		}
		s.must(204, "DELETE", "/v1/locks?key=a&key=b&key=c", "Idempotency-Key", "x")
	})
}

// What a request has made a lock of is not given back where it may have been found before its partition has moved.
func TestTrapLockServiceGivesBackNothingThatMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLockSite(t)
		a := s.StartServing()
		b := s.StartServing()
		key := s.KeyOf(a, "a")
		last := s.must(200, "POST", "/v1/locks/z")
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.must(423, "POST", "/v1/locks?key="+key+"&key=z&wait=8s", "Idempotency-Key", "x")
		}()
		synctest.Wait()
		s.must(200, "POST", "/v1/locks/"+key, "Idempotency-Key", "x")
		if err := a.LeaveRing(t.Context()); err != nil {
			t.Error(err)
		}
		<-done
		if b.IsFree(t, key) {
			t.Error("a lock that a client was told of is gone")
		}
		s.must(204, "DELETE", "/v1/locks/z?lease="+last.Lease)
	})
}

// Requests that carry the same Idempotency-Key are for the same lock.
func TestLockServiceIdempotencyKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLockSite(t)
		s.StartServing()
		first := s.must(200, "POST", "/v1/locks/k", "Idempotency-Key", `"4b0e"`)
		if again := s.must(200, "POST", "/v1/locks/k?wait=1s", "Idempotency-Key", "4b0e"); again.Token != first.Token || again.Lease != first.Lease {
			t.Errorf("%s, and again %s", first.body, again.body)
		}
		s.must(423, "POST", "/v1/locks/k", "Idempotency-Key", "4b0f")
		if a := s.must(200, "PUT", "/v1/locks/k", "Idempotency-Key", "4b0e"); a.Token != first.Token {
			t.Errorf("extended: %s", a.body)
		}
		s.must(410, "DELETE", "/v1/locks/k", "Idempotency-Key", "4b0f")
		s.must(204, "DELETE", "/v1/locks/k", "Idempotency-Key", "4b0e")
		other := s.must(200, "POST", "/v1/locks/other", "Idempotency-Key", "4b0e")
		if other.Lease != first.Lease {
			t.Error("two leases for one Idempotency-Key")
		}
		s.must(204, "DELETE", "/v1/locks/k?lease="+other.Lease)
		s.must(204, "DELETE", "/v1/locks/other?lease="+other.Lease)
	})
}

// A request for a lock that is named as another one is told what differs, and does not get that one.
func TestTrapLockServiceOtherRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLockSite(t)
		w := s.StartServing()
		for mode, other := range map[string]string{"read": "write", "write": "read"} {
			s.must(200, "POST", "/v1/locks/k?mode="+mode, "Idempotency-Key", mode)
			if a := s.must(422, "POST", "/v1/locks/k?mode="+other, "Idempotency-Key", mode); a.Type != "urn:keyway:problem:lock-other" || a.Token != 0 || !strings.Contains(a.body, other[:3]) {
				t.Errorf("%s, and then %s: %s", mode, other, a.body)
			}
			s.must(422, "POST", "/v1/locks?key=a&key=k&mode="+other, "Idempotency-Key", mode)
			s.must(200, "POST", "/v1/locks/k?mode="+mode, "Idempotency-Key", mode)
			if s.must(204, "DELETE", "/v1/locks/k", "Idempotency-Key", mode); !w.IsFree(t, "k") || !w.IsFree(t, "a") {
				t.Error("a key is held in the end")
			}
		}
	})
}

// Several keys are locked together or not at all.
func TestLockServiceSeveralKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLockSite(t)
		a, b := s.StartServing(), s.StartServing()
		for a.Serving() == 16 || b.Serving() == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		keys := []string{"k00", "k01", "k02", "k03", "k04", "k05"}
		all := strings.TrimPrefix(manyKeys(len(keys)), "&")
		free := func() (n int) {
			for _, key := range keys {
				if !s.must(200, "GET", "/v1/locks/"+key).Held {
					n++
				}
			}
			return n
		}
		lock := s.must(200, "POST", "/v1/locks?"+all+"&key=k00&ttl=4s")
		if len(lock.Tokens) != len(keys) || lock.Token != 0 || lock.Key != "" || lock.TTL != 4000 {
			t.Errorf("locked: %s", lock.body)
		}
		for _, key := range keys {
			if state := s.must(200, "GET", "/v1/locks/"+key); !state.Held || state.Token != lock.Tokens[key] {
				t.Errorf("%s: %s, want token %d", key, state.body, lock.Tokens[key])
			}
		}
		if got := s.must(200, "PUT", "/v1/locks?"+all+"&ttl=6s&lease="+lock.Lease); len(got.Tokens) != len(keys) || got.TTL != 6000 {
			t.Errorf("extended: %s", got.body)
		}
		s.must(204, "DELETE", "/v1/locks?"+all+"&lease="+lock.Lease)
		if n := free(); n != len(keys) {
			t.Errorf("%d of %d keys are free", n, len(keys))
		}
		one := s.must(200, "POST", "/v1/locks/k04?label=one")
		if got := s.must(423, "POST", "/v1/locks?"+all); got.Key != "k04" || got.Holder != "one" {
			t.Errorf("one is held: %s", got.body)
		}
		if n := free(); n != len(keys)-1 {
			t.Errorf("%d of %d keys are free, want all but one", n, len(keys))
		}
		s.must(410, "DELETE", "/v1/locks?"+all+"&lease="+one.Lease)
		if n := free(); n != len(keys) {
			t.Errorf("%d of %d keys are free", n, len(keys))
		}
		// What is locked first does not end while the last one is waited for.
		one = s.must(200, "POST", "/v1/locks/k05?ttl=8s")
		var unlocked sync.WaitGroup
		unlocked.Go(func() {
			time.Sleep(7 * time.Second)
			s.must(204, "DELETE", "/v1/locks/k05?lease="+one.Lease)
		})
		lock = s.must(200, "POST", "/v1/locks?"+all+"&ttl=5s&wait=10s")
		if n := free(); n != 0 || lock.TTL < 4500 {
			t.Errorf("%d of %d keys are free: %s", n, len(keys), lock.body)
		}
		unlocked.Wait()
	})
}

// A router that ends has those who wait ask another one, and lets locks be renewed and unlocked.
func TestTrapLockServiceLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLockSite(t)
		w := s.StartServing()
		lock := s.must(200, "POST", "/v1/locks/k")
		done := make(chan lockReply)
		go func() { done <- s.ask(t.Context(), "POST", "/v1/locks/k?wait=20s") }()
		synctest.Wait()
		s.service.Leave()
		if a := <-done; a.code != 503 || a.header.Get("Retry-After") != "1" || a.Type != "urn:keyway:problem:leaving" {
			t.Errorf("who waits reads %d %s %v", a.code, a.body, a.header)
		}
		synctest.Wait()
		if n := w.Queued("k"); n != 0 {
			t.Errorf("%d wait at the worker", n)
		}
		s.must(503, "POST", "/v1/locks/other")
		s.must(200, "GET", "/v1/locks/k")
		s.must(200, "PUT", "/v1/locks/k?lease="+lock.Lease)
		s.must(204, "DELETE", "/v1/locks/k?lease="+lock.Lease)
	})
}

// No more than Limits.MaxHeld requests wait at one time.
func TestLockServiceBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLockSite(t, func(cfg *router.Config) { cfg.MaxHeld = 2 })
		s.StartServing()
		s.must(200, "POST", "/v1/locks/k")
		for range 2 {
			go func() { s.must(423, "POST", "/v1/locks/k?wait=1s") }()
		}
		synctest.Wait()
		if a := s.must(429, "POST", "/v1/locks/other?wait=1s"); a.header.Get("Retry-After") == "" {
			t.Errorf("%v", a.header)
		}
		time.Sleep(2 * time.Second)
		s.must(200, "POST", "/v1/locks/other?wait=1s")
	})
}

// A lock goes along with its partition, and with its owner it is over.
func TestLockServiceFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLockSite(t)
		a := s.StartServing()
		lock := s.must(200, "POST", "/v1/locks/k?ttl=10s")
		b := s.StartServing()
		if err := a.LeaveRing(t.Context()); err != nil {
			t.Fatal(err)
		}
		for b.Serving() < 16 {
			time.Sleep(10 * time.Millisecond)
		}
		if got := s.must(200, "PUT", "/v1/locks/k?ttl=10s&lease="+lock.Lease); got.Token != lock.Token {
			t.Errorf("after a move: %s, want token %d", got.body, lock.Token)
		}
		if err := a.JoinRing(); err != nil {
			t.Fatal(err)
		}
		s.Kill(b)
		time.Sleep(2 * kit.TTL)
		s.must(410, "PUT", "/v1/locks/k?lease="+lock.Lease)
		if next := s.must(200, "POST", "/v1/locks/k"); next.Token <= lock.Token {
			t.Errorf("token %d follows %d", next.Token, lock.Token)
		}
	})
}
