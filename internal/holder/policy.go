package holder

import (
	"math"
	"time"

	"github.com/keyway-go/keyway/internal/lease"
)

// Policy is what a shell wants of its locks. They share it, and it never changes.
type Policy struct {
	TTL      time.Duration // of a worker's sessions; in a store, the term that Margin and Every are about
	Keeper   Keeper
	Persist  bool          // without a renewal the work goes on until another is seen to have the lock, which is taken again if it is free
	Margin   time.Duration // by which the work ends before the term in a store, in proportion to that
	Every    time.Duration // between renewals in a store, likewise; Never: only extensions renew a lock
	TurnsFor time.Duration // from a lock's grant to its last turn; Never: without a bound
}

// Keeper is the kind of owner that keeps locks.
type Keeper uint8

// The keepers.
const (
	Worker Keeper = iota // a lock ends with its worker's session unless the store keeps it; an extension sets its term
	Store                // each call says the term
)

// Never is longer than any term.
const Never = time.Duration(math.MaxInt64)

// Lease returns the lease of a lock that a call sent at sent has confirmed.
func (p *Policy) Lease(sent lease.Instant, term time.Duration) lease.Lease {
	if p.Keeper == Worker {
		return lease.New(sent, term)
	}
	end := sent.Add(term - p.scaled(p.Margin, term))
	return lease.Lease{Admit: end.Add(-term / 3), Cancel: end, Surrender: end}
}

// scaled returns d, which is that of a lock of the TTL, for one of that term.
func (p *Policy) scaled(d, term time.Duration) time.Duration {
	if term == p.TTL {
		return d
	}
	return time.Duration(float64(d) * (float64(term) / float64(p.TTL)))
}

// span is what the pace of renewals depends on. A long lease at a worker is renewed as often as its session, so that its
// loss is soon known.
func (p *Policy) span(term time.Duration) time.Duration {
	if p.Keeper == Worker {
		return min(term, p.TTL)
	}
	return term
}

// due returns the age at which a lock of that term is renewed.
func (p *Policy) due(term time.Duration) time.Duration {
	switch {
	case p.Keeper == Worker:
		return p.span(term) / 5
	case p.Every == Never:
		return Never / 2
	}
	return p.scaled(p.Every, term)
}

// Pause returns how often locks of that term want a Tick, and how soon a call that has failed is repeated.
func (p *Policy) Pause(term time.Duration) time.Duration {
	return max(min(p.due(term), p.span(term)/5)/10, time.Millisecond)
}
