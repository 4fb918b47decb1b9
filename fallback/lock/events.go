package lock

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyway-go/keyway/internal/holding"
	"github.com/keyway-go/keyway/internal/metrics"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// event is something that happens to a lock. Each is counted and logged.
type event uint8

const (
	waited        event = iota // a caller found the lock taken and begins to wait
	acquired                   // from Redis
	handedOver                 // by the caller before, without asking Redis
	refusedLocked              // by another: a try or a wait ended
	refusedLeft                // the context of the try or wait ended
	refusedFailed              // a try or a wait, for another reason
	renewed
	renewFailed // more renewals follow while there is time
	expired     // the context ended because renewals failed
	lost        // the lock was gone or another's
	released
	releasedAnothers // the caller no longer had the lock
	releasedPerhaps  // no answer came
	detached         // handed to another process
	attached         // and taken over from one
	events
)

// eventKinds says how each event is logged and counted.
var eventKinds = [events]struct {
	text   string
	level  slog.Level
	metric metrics.Family
	labels []string
}{
	waited:           {"waited for", slog.LevelDebug, contendedMetric, nil},
	acquired:         {"acquired", slog.LevelDebug, acquisitionsMetric, []string{"acquired"}},
	handedOver:       {"handed over", slog.LevelDebug, acquisitionsMetric, []string{"handed-over"}},
	refusedLocked:    {"refused", slog.LevelDebug, acquisitionsMetric, []string{"locked"}},
	refusedLeft:      {"refused", slog.LevelDebug, acquisitionsMetric, []string{"left"}},
	refusedFailed:    {"refused", slog.LevelDebug, acquisitionsMetric, []string{"failed"}},
	renewed:          {"renewed", slog.LevelDebug, renewalsMetric, []string{"renewed"}},
	renewFailed:      {"not renewed", slog.LevelWarn, renewalsMetric, []string{"failed"}},
	expired:          {"expired", slog.LevelWarn, expiredMetric, nil},
	lost:             {"lost", slog.LevelWarn, lostMetric, nil},
	released:         {"released", slog.LevelDebug, releasesMetric, []string{"released"}},
	releasedAnothers: {"released", slog.LevelWarn, releasesMetric, []string{"not-owner"}},
	releasedPerhaps:  {"released", slog.LevelWarn, releasesMetric, []string{"unknown"}},
	detached:         {"detached", slog.LevelDebug, movedMetric, []string{"detached"}},
	attached:         {"attached", slog.LevelDebug, movedMetric, []string{"attached"}},
}

// refusalBy returns which event it is that a caller with ctx gets err in place of a lock.
func refusalBy(ctx context.Context, err error) event {
	switch {
	case errors.Is(err, locking.ErrLocked):
		return refusedLocked
	case ctx.Err() != nil:
		return refusedLeft
	}
	return refusedFailed
}

// releaseBy returns which event the end of an Unlock with err is.
func releaseBy(err error) event {
	switch {
	case err == nil:
		return released
	case errors.Is(err, locking.ErrNotOwner):
		return releasedAnothers
	}
	return releasedPerhaps
}

// emit counts an event of a caller with ctx, and logs it.
func (l *Locker) emit(ctx context.Context, what event, of ask, err error, attrs ...slog.Attr) {
	l.counts.events[what].Add(1)
	kind := &eventKinds[what]
	if !l.cfg.Logger.Enabled(ctx, kind.level) {
		return
	}
	all := []slog.Attr{slog.String("keys", strings.Join(of.names, " ")), slog.Bool("read", of.read)}
	if of.opts.Label != "" {
		all = append(all, slog.String("label", of.opts.Label))
	}
	all = append(all, attrs...)
	if err != nil {
		all = append(all, slog.Any("error", err))
	}
	l.cfg.Logger.LogAttrs(ctx, kind.level, "lock "+kind.text, all...)
}

// emitOf counts and logs an event of a lock that is or was held. t is nil for a lock that was passed
// on, while its next caller has not begun.
func (l *Locker) emitOf(ctx context.Context, what event, t *holding.Tenure, of ask, err error) {
	var attrs []slog.Attr
	if t != nil {
		attrs = []slog.Attr{slog.Int64("token", t.Token), slog.Duration("held", time.Since(t.Since))}
	}
	l.emit(ctx, what, of, err, attrs...)
}

// counts has the counters of a Locker. Any goroutine may add to them.
type counts struct {
	events       [events]atomic.Int64
	asking       atomic.Int64 // callers that are about to have a lock, or wait for one
	held         atomic.Int64
	waits, holds metrics.Latencies
}

func (c *counts) ended(t *holding.Tenure) {
	c.held.Add(-1)
	c.holds.Observe(time.Since(t.Since))
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
