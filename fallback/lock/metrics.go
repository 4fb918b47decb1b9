package lock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyway-go/keyway/internal/metrics"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// counts has the counters of a Locker. Any goroutine may add to them.
type counts struct {
	events       [happenings]atomic.Int64
	acquisitions [len(acquisitions)]atomic.Int64
	releases     [len(releases)]atomic.Int64
	asking       atomic.Int64 // callers that are about to have a lock, or wait for one
	held         atomic.Int64
	waits, holds metrics.Latencies
}

// How attempts to take a lock end, and how locks are given back.
const (
	inRedis, handedOver, isLocked, callerLeft, hasFailed = 0, 1, 2, 3, 4
	asOwner, asAnother, perhaps                          = 0, 1, 2
)

var (
	acquisitions = [...]string{"acquired", "handed-over", "locked", "left", "failed"}
	releases     = [...]string{"released", "not-owner", "unknown"}
)

// outcome returns which of acquisitions an event of a caller with ctx is.
func outcome(ctx context.Context, e Event) int {
	switch {
	case e.Err == nil && e.Local:
		return handedOver
	case e.Err == nil:
		return inRedis
	case errors.Is(e.Err, locking.ErrLocked):
		return isLocked
	case ctx.Err() != nil:
		return callerLeft
	}
	return hasFailed
}

func (c *counts) countEvent(ctx context.Context, what happening, e Event) {
	c.events[what].Add(1)
	switch what {
	case acquired:
		c.acquisitions[outcome(ctx, e)].Add(1)
		c.waits.Observe(e.Wait)
	case refused:
		c.acquisitions[outcome(ctx, e)].Add(1)
	case released:
		by := asOwner
		if errors.Is(e.Err, locking.ErrNotOwner) {
			by = asAnother
		} else if e.Err != nil {
			by = perhaps
		}
		c.releases[by].Add(1)
	}
}

func (c *counts) ended(held time.Duration) {
	c.held.Add(-1)
	c.holds.Observe(held)
}

// The families of metrics of a Locker; docs/metrics.md describes them.
var (
	families metrics.Families

	acquisitionsMetric = families.Counter("keyway_lock_acquisitions_total", "Attempts to take a lock that have ended: acquired in Redis, handed over by the caller before in this process, locked by another, left by the caller, or failed.", "result")
	contendedMetric    = families.Counter("keyway_lock_contended_total", "Callers that found the lock taken in Redis and began to wait.")
	waitMetric         = families.Histogram("keyway_lock_wait_seconds", "Time until a lock was acquired.")
	askingMetric       = families.Gauge("keyway_lock_asking", "Callers that ask for a lock, or wait for it.")
	heldMetric         = families.Gauge("keyway_lock_held", "Locks that callers of this process hold.")
	holdMetric         = families.Histogram("keyway_lock_hold_seconds", "Time for which locks were held.")
	renewalsMetric     = families.Counter("keyway_lock_renewals_total", "Renewals of locks that are held: renewed or failed.", "result")
	expiredMetric      = families.Counter("keyway_lock_expired_total", "Locks whose context has ended because renewals failed.")
	lostMetric         = families.Counter("keyway_lock_lost_total", "Locks that were gone, or had another holder, while they were held here.")
	releasesMetric     = families.Counter("keyway_lock_releases_total", "Releases of locks: released, not-owner if the caller no longer had the lock, unknown if no answer came.", "result")
	movedMetric        = families.Counter("keyway_lock_moved_total", "Locks that went on in another process: detached here, or attached here.", "direction")
)

var _ prometheus.Collector = (*Locker)(nil)

// Describe implements [prometheus.Collector].
func (l *Locker) Describe(ch chan<- *prometheus.Desc) { families.Describe(ch) }

// Collect implements [prometheus.Collector]. Several Lockers in one registry need a distinguishing
// label each, such as [prometheus.WrapRegistererWith] adds.
func (l *Locker) Collect(ch chan<- prometheus.Metric) {
	c := &l.counts
	for i, result := range acquisitions {
		metrics.Send(ch, acquisitionsMetric, c.acquisitions[i].Load(), result)
	}
	metrics.Send(ch, contendedMetric, c.events[waited].Load())
	metrics.SendHistogram(ch, waitMetric, c.waits.Distribution())
	metrics.Send(ch, askingMetric, c.asking.Load())
	metrics.Send(ch, heldMetric, c.held.Load())
	metrics.SendHistogram(ch, holdMetric, c.holds.Distribution())
	metrics.Send(ch, renewalsMetric, c.events[renewed].Load(), "renewed")
	metrics.Send(ch, renewalsMetric, c.events[renewFailed].Load(), "failed")
	metrics.Send(ch, expiredMetric, c.events[expired].Load())
	metrics.Send(ch, lostMetric, c.events[lost].Load())
	for i, result := range releases {
		metrics.Send(ch, releasesMetric, c.releases[i].Load(), result)
	}
	metrics.Send(ch, movedMetric, c.events[detached].Load(), "detached")
	metrics.Send(ch, movedMetric, c.events[attached].Load(), "attached")
}
