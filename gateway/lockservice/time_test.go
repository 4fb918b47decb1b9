package lockservice_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// The ttl_ms of an answer is no more than the owner gives the key, however late its answers come.
func TestTrapLockServiceTellsTheTimeThatIsLeft(t *testing.T) {
	const late = 900 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		s := newLockSite(t)
		w := s.StartServing()
		keep := func(a lockReply, keys ...string) {
			t.Helper()
			s.Network.Delay("", 0)
			if a.TTL > 5000-late.Milliseconds() || a.TTL < 3000 {
				t.Errorf("%s of 5 s", a.body)
			}
			time.Sleep(time.Duration(a.TTL-10) * time.Millisecond)
			for _, key := range keys {
				if w.IsFree(t, key) {
					t.Errorf("%s is free within what was told: %s", key, a.body)
				}
			}
		}
		s.Network.Delay(holds.Acquire, late)
		keep(s.must(200, "POST", "/v1/locks/k?ttl=5s"), "k")
		s.Network.Delay(holds.Acquire, late)
		keep(s.must(200, "POST", "/v1/locks?key=a&key=b&ttl=5s"), "a", "b")
		one := s.must(200, "POST", "/v1/locks/one?ttl=5s")
		s.Network.Delay(holds.Extend, late)
		keep(s.must(200, "PUT", "/v1/locks/one?ttl=5s&lease="+one.Lease), "one")
	})
}

// Who asks for less time than is left loses none, whoever renews the lock.
func TestTrapExtendNeverShortens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLockSite(t)
		w := s.StartServing()
		a := s.must(200, "POST", "/v1/locks/k?ttl=8s")
		s.must(200, "PUT", "/v1/locks/k?ttl=1s&lease="+a.Lease)
		l := kit.Must(s.NewClient().Lock(t.Context(), "long", locking.TTL(6*kit.TTL)))
		until := l.Until()
		if err := l.Extend(t.Context(), kit.TTL/2); err != nil || l.Until().Before(until) {
			t.Errorf("Extend: %v, until %v, and %v before", err, l.Until(), until)
		}
		time.Sleep(7 * time.Second)
		if w.IsFree(t, "k") {
			t.Error("a PUT has taken what was left")
		}
		if l.Until().Before(until) || l.Context().Err() != nil {
			t.Errorf("renewed: until %v, and %v before", l.Until(), until)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
