// Package lease computes until when a process may act on a lease that it must renew: a worker's
// session in the store, or a caller's hold of a key at its owner. It depends only on readings of
// the process's two clocks.
package lease

import (
	"math"
	"time"
)

// Instant is one reading of a process's two clocks. Go's monotonic clock stops while a virtual
// machine is suspended, and the wall clock may step, so neither alone is enough for a deadline.
type Instant struct {
	Mono time.Duration // monotonic clock, since any fixed point in the process's life
	Wall time.Duration // wall clock, since the Unix epoch
}

// At returns t as an Instant whose monotonic clock counts from base. Both must be
// of this process's clock, as [time.Now] returns them.
func At(base, t time.Time) Instant {
	return Instant{Mono: t.Sub(base), Wall: time.Duration(t.UnixNano())}
}

// Add returns the instant d later on both clocks, or as late as there is one.
func (i Instant) Add(d time.Duration) Instant {
	d = min(d, math.MaxInt64-max(i.Mono, i.Wall, 0))
	return Instant{Mono: i.Mono + d, Wall: i.Wall + d}
}

// Passed reports whether the deadline i has passed at now: whether either clock says so.
func (i Instant) Passed(now Instant) bool {
	return now.Mono >= i.Mono || now.Wall >= i.Wall
}

// Left returns how much time is left at now until the deadline i, by the clock
// that says less; 0 if it has passed.
func (i Instant) Left(now Instant) time.Duration {
	return max(min(i.Mono-now.Mono, i.Wall-now.Wall), 0)
}

// earlier returns the earlier of two deadlines on each clock.
func (i Instant) earlier(j Instant) Instant {
	return Instant{Mono: min(i.Mono, j.Mono), Wall: min(i.Wall, j.Wall)}
}

// Parts of the TTL after which a lease that has not been renewed admits
// nothing more, cancels what runs, and counts as lost.
const (
	admitPercent     = 70
	cancelPercent    = 80
	surrenderPercent = 95
)

// Lease says how long its holder may continue without a renewal. The zero Lease admits nothing.
type Lease struct {
	Admit     Instant // from here on nothing may start
	Cancel    Instant // from here on the contexts of what runs are cancelled
	Surrender Instant // by now all of it has ended; others may take over soon after
}

// New returns the lease that was renewed by a call sent no earlier than sent. The
// three deadlines are 70, 80 and 95 percent of ttl after it; the rest of ttl is
// the margin for clocks that run at different rates.
func New(sent Instant, ttl time.Duration) Lease {
	return Lease{
		Admit:     sent.Add(ttl / 100 * admitPercent),
		Cancel:    sent.Add(ttl / 100 * cancelPercent),
		Surrender: sent.Add(ttl / 100 * surrenderPercent),
	}
}

// Sent returns when the call that renewed a lease of that ttl was sent.
func (l Lease) Sent(ttl time.Duration) Instant {
	return l.Surrender.Add(-(ttl / 100 * surrenderPercent))
}

// Grace is how long cancelled work may continue: from Cancel to Surrender.
func Grace(ttl time.Duration) time.Duration {
	l := New(Instant{}, ttl)
	return l.Surrender.Mono - l.Cancel.Mono
}

// Admits reports whether something may start at now. Ask it with a fresh reading of the clocks each
// time, and again after winning a key's mutex: a process may have been stopped in between.
func (l Lease) Admits(now Instant) bool { return !l.Admit.Passed(now) }

// Within returns l, ended early where that of another one, on which it rests, is
// cancelled or surrendered so long after from.
func (l Lease) Within(from Instant, cancel, surrender time.Duration) Lease {
	at := from.Add(cancel)
	return Lease{Admit: l.Admit.earlier(at), Cancel: l.Cancel.earlier(at), Surrender: l.Surrender.earlier(from.Add(surrender))}
}
