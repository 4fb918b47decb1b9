package lock

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyway-go/keyway/internal/metrics"
)

// counts has the counters of a Locker. Any goroutine may add to them.
type counts struct {
	events       [events]atomic.Int64
	asking       atomic.Int64 // callers that are about to have a lock, or wait for one
	held         atomic.Int64
	waits, holds metrics.Latencies
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
	for what, kind := range eventKinds {
		metrics.Send(ch, kind.metric, c.events[what].Load(), kind.labels...)
	}
	metrics.SendHistogram(ch, waitMetric, c.waits.Distribution())
	metrics.Send(ch, askingMetric, c.asking.Load())
	metrics.Send(ch, heldMetric, c.held.Load())
	metrics.SendHistogram(ch, holdMetric, c.holds.Distribution())
}
