package fabric

import (
	"cmp"
	"slices"
	"time"

	"github.com/keyway-go/keyway/internal/wake"
)

// arrival is a frame that is on its way to a port.
type arrival struct {
	at    time.Time
	order uint64 // on its path, for frames that arrive at one time
	from  string
	frame []byte
}

// put adds an arrival, the earliest ones first, and wakes who delivers. The switch's mutex is held, as
// for the other methods.
func (p *port) put(a arrival) {
	i, _ := slices.BinarySearchFunc(p.waiting, a, func(x, y arrival) int {
		return cmp.Or(x.at.Compare(y.at), cmp.Compare(x.order, y.order))
	})
	p.waiting = slices.Insert(p.waiting, i, a)
	p.bytes += len(a.frame)
	wake.Up(p.wake)
}

// take removes the arrivals that are due, and returns the time until the next
// one is.
func (p *port) take(now time.Time) (due []arrival, next time.Duration) {
	next = time.Hour
	n := slices.IndexFunc(p.waiting, func(a arrival) bool { return a.at.After(now) })
	if n < 0 {
		n = len(p.waiting)
	} else {
		next = p.waiting[n].at.Sub(now)
	}
	due = slices.Clone(p.waiting[:n])
	for _, a := range due {
		p.bytes -= len(a.frame)
	}
	p.waiting = slices.Delete(p.waiting, 0, n)
	return due, next
}

// drop loses the arrivals from another port.
func (p *port) drop(from string) {
	p.waiting = slices.DeleteFunc(p.waiting, func(a arrival) bool {
		if a.from == from {
			p.bytes -= len(a.frame)
		}
		return a.from == from
	})
}
