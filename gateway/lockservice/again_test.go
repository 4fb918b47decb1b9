package lockservice_test

import (
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway/lockservice"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// loseAnswer lets the answers that a worker gives in a moment be lost, with their connections.
func (s *lockSite) loseAnswer(w *site.Worker) {
	s.Mute(w)
	time.AfterFunc(kit.TTL/20, func() { s.Unmute(w) })
}

// A request for several keys gives back what it has locked, also if the router had to ask for that twice.
func TestTrapLockServiceGivesBackWhatItAskedForTwice(t *testing.T) {
	for _, lease := range []string{"5s", "24h"} {
		synctest.Test(t, func(t *testing.T) {
			s := newLockSite(t)
			w := s.StartServing()
			last := s.must(200, "POST", "/v1/locks/b")
			s.loseAnswer(w)
			if s.must(423, "POST", "/v1/locks?key=a&key=b&ttl="+lease, "Idempotency-Key", "x"); !w.IsFree(t, "a") {
				t.Errorf("ttl=%s: a key is held for a request that has not got all of them", lease)
			}
			s.must(204, "DELETE", "/v1/locks/b?lease="+last.Lease)
		})
	}
}

// A request whose first key is over when the last one has come gives that one back.
func TestTrapLockServiceGivesBackWhatComesTooLate(t *testing.T) {
	for name, field := range map[string][]string{"chosen": {"Idempotency-Key", "x"}, "drawn": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newLockSite(t)
				w := s.StartServing()
				s.Network.Delay(":acquire", 1200*time.Millisecond)
				s.must(410, "POST", "/v1/locks?key=a&key=b&ttl=2s&wait=60s", field...)
				s.Network.Delay("", 0)
				if !w.IsFree(t, "b") {
					t.Error("a key is held for a request that was answered with 410")
				}
				time.Sleep(kit.TTL)
			})
		})
	}
}

// To unlock is answered with 204 however often it is done, or has to be done, where the lock was its client's up to the first
// time, and with 410 otherwise.
func TestTrapUnlockAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLockSite(t)
		a := s.StartServing()
		unlock := func(code int, key string) {
			t.Helper()
			s.must(code, "DELETE", "/v1/locks/"+key, "Idempotency-Key", "x")
		}
		for _, lease := range []string{"5s", "1h"} {
			s.must(200, "POST", "/v1/locks/"+lease+"?ttl="+lease, "Idempotency-Key", "x")
			s.loseAnswer(a)
			unlock(204, lease)
			unlock(204, lease)
			s.must(410, "PUT", "/v1/locks/"+lease, "Idempotency-Key", "x")
		}
		s.must(200, "POST", "/v1/locks/k?ttl=1s", "Idempotency-Key", "x")
		time.Sleep(2 * time.Second)
		unlock(410, "k") // for the lock that has ended
		unlock(410, "k")
		b := s.StartServing()
		key := s.KeyOf(a, "moves")
		s.must(200, "POST", "/v1/locks/"+key, "Idempotency-Key", "x")
		unlock(204, key)
		if err := a.LeaveRing(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.AwaitServing(t, 16)
		unlock(204, key)
		time.Sleep(3 * kit.TTL)
		unlock(410, key)
	})
}

// A POST that arrives after the DELETE of its Idempotency-Key locks nothing, at the next owner too. A request that was refused
// may be made again.
func TestTrapUnlockIsFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLockSite(t)
		a := s.StartServing()
		b := s.StartServing()
		key := s.KeyOf(a, "moves")
		post := func(code int, keys, id string) {
			t.Helper()
			if a := s.must(code, "POST", "/v1/locks?"+keys, "Idempotency-Key", id); code == 410 && !strings.Contains(a.body, "new lease or Idempotency-Key") {
				t.Errorf("the client reads %s", a.body)
			}
		}
		post(200, "key="+key, "locked")
		s.must(204, "DELETE", "/v1/locks/"+key, "Idempotency-Key", "locked")
		s.must(410, "DELETE", "/v1/locks/"+key, "Idempotency-Key", "late")
		for range 2 {
			post(410, "key="+key, "locked")
			post(410, "key="+key, "late")
			if s.must(200, "GET", "/v1/locks/"+key).Held {
				t.Error("a key is locked after it was unlocked")
			}
			if err := a.LeaveRing(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.AwaitServing(t, 16)
		}
		last := s.must(200, "POST", "/v1/locks/z")
		post(423, "key=a&key=z", "again")
		s.must(204, "DELETE", "/v1/locks/z?lease="+last.Lease)
		post(200, "key=a&key=z", "again")
		time.Sleep(3 * kit.TTL)
		post(200, "key="+key, "locked") // the owner has forgotten
	})
}

// One client that waits for a key often leaves room for others in the key's queue.
func TestTrapLockCallsOfOneClientLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLockSite(t)
		w := s.StartServing(func(cfg *worker.Config) { cfg.QueuePerKey = 8 })
		service := lockservice.New(s.router, lockservice.Config{Token: "s3cret"})
		ask := func(client, target string) int {
			r := httptest.NewRequestWithContext(t.Context(), "POST", target, nil)
			r.RemoteAddr = client + ":4711"
			r.Header.Set("Authorization", "Bearer s3cret")
			a := httptest.NewRecorder()
			service.ServeHTTP(a, r)
			return a.Code
		}
		var all sync.WaitGroup
		if code := ask("192.0.2.9", "/v1/locks/k?ttl=9s"); code != 200 {
			t.Fatal(code)
		}
		for range 10 {
			all.Go(func() { ask("192.0.2.1", "/v1/locks/k?wait=3s") })
		}
		synctest.Wait()
		if n := w.Queued("k"); n != 8 {
			t.Fatalf("%d wait", n)
		}
		if code := ask("192.0.2.2", "/v1/locks/k?wait=1s"); code != 423 {
			t.Errorf("another client reads %d, want 423 after its wait", code)
		}
		all.Wait()
	})
}

// Two who want the same keys in another order do not wait for each other in a circle.
func TestTrapLockServiceOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLockSite(t)
		s.StartServing()
		done := make(chan bool)
		for _, keys := range []string{"key=a&key=b", "key=b&key=a"} {
			go func() {
				for range 20 {
					lock := s.must(200, "POST", "/v1/locks?wait=2s&"+keys)
					s.must(204, "DELETE", "/v1/locks?"+keys+"&lease="+lock.Lease)
				}
				done <- true
			}()
		}
		<-done
		<-done
	})
}

// Readers have a key together, and no writer beside them.
func TestLockServiceReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLockSite(t)
		w := s.StartServing()
		first := s.must(200, "POST", "/v1/locks/k?mode=read&label=one&ttl=2s")
		second := s.must(200, "POST", "/v1/locks/k?mode=read&label=two&ttl=4s")
		if first.Token != second.Token || first.Lease == second.Lease {
			t.Errorf("two who read: %s %s", first.body, second.body)
		}
		if a := s.must(423, "POST", "/v1/locks/k?mode=write"); a.Readers != 2 || a.Holder != "two" || a.TTL != 4000 {
			t.Errorf("beside them: %s", a.body)
		}
		s.must(204, "DELETE", "/v1/locks/k?lease="+second.Lease)
		if a := s.must(200, "GET", "/v1/locks/k"); a.Readers != 1 || a.Holder != "one" {
			t.Errorf("one is left: %s", a.body)
		}
		s.must(204, "DELETE", "/v1/locks/k?lease="+first.Lease)
		if !w.IsFree(t, "k") {
			t.Error("held after both have unlocked it")
		}
		s.must(400, "POST", "/v1/locks/k?mode=shared")
		s.must(400, "GET", "/v1/locks/k?mode=read")
	})
}
