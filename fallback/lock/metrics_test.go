package lock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/test/metrictest"
	"github.com/keyway-go/keyway/internal/test/netproxy"
	"github.com/keyway-go/keyway/internal/test/redistest"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// expectMetrics waits until the Locker's metrics have changed so since before.
func expectMetrics(t *testing.T, l *Locker, before, want metrictest.Values) {
	t.Helper()
	eventually(t, time.Minute, fmt.Sprint(want), func() bool {
		changed := metrictest.Gather(t, l).Changed(before)
		for name, n := range want {
			if changed[name] != n {
				return false
			}
		}
		return true
	})
}

func TestMetrics(t *testing.T) {
	server := redistest.Start(t)
	waiting := make(chan struct{}, 1)
	l := testLocker(t, server.Addr(), Config{MaxWait: time.Minute, Logger: tells("lock waited for", waiting)})
	other := testLocker(t, server.Addr(), Config{})
	before := metrictest.Gather(t, l)
	k := mustLock(t, l.Lock, "key")
	expectMetrics(t, l, before, metrictest.Values{
		`keyway_lock_acquisitions_total{result="acquired"}`: 1,
		"keyway_lock_wait_seconds_count":                    1,
		"keyway_lock_held":                                  1,
	})
	next := make(chan *Lock)
	go func() {
		k, _ := l.Lock(t.Context(), "key")
		next <- k
	}()
	expectMetrics(t, l, before, metrictest.Values{"keyway_lock_asking": 1})
	mustUnlock(t, k)
	k = <-next
	expectMetrics(t, l, before, metrictest.Values{
		`keyway_lock_acquisitions_total{result="handed-over"}`: 1,
		`keyway_lock_releases_total{result="released"}`:        1,
		"keyway_lock_hold_seconds_count":                       1,
		"keyway_lock_held":                                     1,
		"keyway_lock_asking":                                   0,
	})
	mustUnlock(t, k)
	expectMetrics(t, l, before, metrictest.Values{"keyway_lock_held": 0, "keyway_lock_hold_seconds_count": 2})

	theirs := mustLock(t, other.Lock, "key")
	if _, err := l.TryLock(t.Context(), "key"); err == nil {
		t.Fatal("two have the lock")
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-waiting; cancel() }()
	if _, err := l.Lock(ctx, "key"); err == nil {
		t.Fatal("two have the lock")
	}
	expectMetrics(t, l, before, metrictest.Values{
		`keyway_lock_acquisitions_total{result="locked"}`: 1,
		`keyway_lock_acquisitions_total{result="left"}`:   1,
		"keyway_lock_contended_total":                     1,
		"keyway_lock_asking":                              0,
	})
	mustUnlock(t, theirs)
}

func TestMetricsOfFailures(t *testing.T) {
	server, proxy := lockProxy(t)
	l := testLocker(t, proxy.Addr(), Config{TTL: 300 * time.Millisecond, Timeout: 50 * time.Millisecond})
	before := metrictest.Gather(t, l)
	k := mustLock(t, l.Lock, "key")
	expectMetrics(t, l, before, metrictest.Values{"keyway_lock_held": 1})
	eventually(t, time.Minute, "it is renewed", func() bool {
		return metrictest.Gather(t, l)[`keyway_lock_renewals_total{result="renewed"}`] > 0
	})
	server.CLI("set", "keyway:lock:{key}", "wanother")
	expectMetrics(t, l, before, metrictest.Values{"keyway_lock_lost_total": 1, "keyway_lock_held": 0})
	wantErr(t, k.Unlock(t.Context()), locking.ErrNotOwner)
	expectMetrics(t, l, before, metrictest.Values{`keyway_lock_releases_total{result="not-owner"}`: 1, "keyway_lock_hold_seconds_count": 1})

	k = mustLock(t, l.Lock, "other")
	proxy.Set(netproxy.ToServer, netproxy.Fault{Drop: true})
	expectMetrics(t, l, before, metrictest.Values{"keyway_lock_expired_total": 1, "keyway_lock_held": 0})
	if n := metrictest.Gather(t, l)[`keyway_lock_renewals_total{result="failed"}`]; n == 0 {
		t.Error("no failed renewal is counted")
	}
	if _, err := l.TryLock(t.Context(), "third"); err == nil {
		t.Fatal("locked without a server")
	}
	expectMetrics(t, l, before, metrictest.Values{`keyway_lock_acquisitions_total{result="failed"}`: 1})
	wantErr(t, k.Unlock(within(t, time.Second)), locking.ErrUnlockUnknown)
	expectMetrics(t, l, before, metrictest.Values{`keyway_lock_releases_total{result="unknown"}`: 1})
}
