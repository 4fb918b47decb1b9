package lockservice_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// Readers behind a writer that has given up get the key at once, over the lock service and by RLock.
func TestTrapReadersBehindAWriterThatGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLockSite(t)
		s.StartServing()
		c := s.NewClient()
		first := s.must(200, "POST", "/v1/locks/k?mode=read&ttl=5m")
		go s.ask(t.Context(), "POST", "/v1/locks/k?wait=1s")
		synctest.Wait()
		began := time.Now()
		var readers sync.WaitGroup
		for range 30 {
			readers.Go(func() {
				if a := s.must(200, "POST", "/v1/locks/k?mode=read&wait=20s"); a.Token != first.Token || time.Since(began) > 1100*time.Millisecond {
					t.Errorf("a reader after %v: token %d, want %d", time.Since(began), a.Token, first.Token)
				}
			})
		}
		readers.Wait()
		if l, err := c.RLock(t.Context(), "k"); err != nil || l.Token() != first.Token || time.Since(began) > 1200*time.Millisecond {
			t.Errorf("RLock after %v: %v", time.Since(began), err)
		}
	})
}

// A wait for a key includes that for an owner; without one a request waits for an owner for a moment only.
func TestTrapWaitIncludesTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLockSite(t)
		for _, test := range []struct {
			query string
			least time.Duration
		}{{"wait=1s", time.Second}, {"wait=100ms", kit.TTL / 100}, {"", kit.TTL / 5}} {
			began := time.Now()
			a := s.must(503, "POST", "/v1/locks/k?"+test.query)
			if took := time.Since(began); took < test.least || took > test.least+200*time.Millisecond || !strings.Contains(a.Type, "no-owner") {
				t.Errorf("%q without an owner: %v, %s", test.query, took, a.body)
			}
		}
		c, began := s.NewClient(), time.Now()
		_, err := c.Lock(t.Context(), "k", locking.Wait(time.Second))
		if took := time.Since(began); !errors.Is(err, gateway.ErrUnavailable) || took < time.Second || took > time.Second+kit.TTL/50 {
			t.Errorf("Lock after %v: %v", took, err)
		}
		began = time.Now()
		if _, err := c.TryLock(t.Context(), "k"); !errors.Is(err, gateway.ErrUnavailable) || time.Since(began) > kit.TTL/5+200*time.Millisecond {
			t.Errorf("TryLock after %v: %v", time.Since(began), err)
		}
	})
}

// The longest wait that can be said is one.
func TestLongestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLockSite(t)
		s.StartServing()
		s.must(200, "POST", "/v1/locks/k?ttl=1s")
		s.must(200, "POST", "/v1/locks/k?wait=2562047h47m16.8s")
	})
}

// An owner that answers nothing does not make a request wait for longer than it says, and the time for an answer.
func TestTrapWaitAtASilentOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLockSite(t)
		s.StartServing()
		s.must(200, "POST", "/v1/locks/other")
		s.Network.Delay(holds.Acquire, 4*kit.TTL)
		began := time.Now()
		s.must(503, "POST", "/v1/locks/k?wait=1s", "Idempotency-Key", "1")
		if took := time.Since(began); took > time.Second+kit.TTL/5 {
			t.Errorf("answered after %v", took)
		}
		s.Network.Delay("", 0)
		time.Sleep(8 * kit.TTL)
	})
}

// A time that is over before its answer comes is refused, not answered as a lock that was lost.
func TestLeastTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLockSite(t)
		s.StartServing()
		a := s.must(400, "POST", "/v1/locks/k?ttl=1ms")
		if !strings.Contains(a.body, "10ms") {
			t.Errorf("it does not say how much it wants: %s", a.body)
		}
		l := s.must(200, "POST", "/v1/locks/k?ttl=10ms")
		s.must(400, "PUT", "/v1/locks/k?ttl=9ms&lease="+l.Lease)
		if _, err := s.NewClient().Lock(t.Context(), "k", locking.TTL(time.Millisecond)); !errors.Is(err, locking.ErrOption) || !strings.Contains(err.Error(), "10ms") {
			t.Errorf("in Go: %v", err)
		}
	})
}
