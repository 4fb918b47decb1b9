package handoff

import "time"

// Instant is one reading of a process's two clocks. Go's monotonic clock
// stops while a virtual machine is suspended, and the wall clock may step, so
// neither alone is enough for a deadline.
type Instant struct {
	Mono time.Duration // monotonic clock, since any fixed point in the process's life
	Wall time.Duration // wall clock, since the Unix epoch
}

// Add returns the instant d later on both clocks.
func (i Instant) Add(d time.Duration) Instant {
	return Instant{Mono: i.Mono + d, Wall: i.Wall + d}
}

// Passed reports whether the deadline i has passed at now: whether either
// clock says so.
func (i Instant) Passed(now Instant) bool {
	return now.Mono >= i.Mono || now.Wall >= i.Wall
}

// Parts of the TTL after which a session that has not been renewed stops
// admitting, cancels its handlers, and counts itself lost.
const (
	admitPercent     = 70
	cancelPercent    = 80
	surrenderPercent = 95
)

// Lease says how long an incarnation may go on without another renewal of its
// session. The zero Lease admits nothing.
type Lease struct {
	Admit     Instant // from here on no request may start
	Cancel    Instant // from here on the handlers' contexts are cancelled
	Surrender Instant // by now every handler has ended; others may take over soon after
}

// NewLease returns the lease of a session that was renewed by a call sent no
// earlier than sent. The three deadlines are 70, 80 and 95 percent of ttl
// after it; the rest of ttl is the margin for clocks that run at different
// rates.
func NewLease(sent Instant, ttl time.Duration) Lease {
	return Lease{
		Admit:     sent.Add(ttl / 100 * admitPercent),
		Cancel:    sent.Add(ttl / 100 * cancelPercent),
		Surrender: sent.Add(ttl / 100 * surrenderPercent),
	}
}

// Admits reports whether a request may start at now. Ask it with a fresh
// reading of the clocks each time, and again after winning the key's mutex: a
// process may have been stopped in between.
func (l Lease) Admits(now Instant) bool { return !l.Admit.Passed(now) }
