package fabric

import (
	"cmp"
	"container/heap"
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

// schedule is a heap of arrivals, the earliest one first.
type schedule []arrival

func (s schedule) Len() int      { return len(s) }
func (s schedule) Swap(i, j int) { s[i], s[j] = s[j], s[i] }
func (s *schedule) Push(a any)   { *s = append(*s, a.(arrival)) }

func (s schedule) Less(i, j int) bool {
	return cmp.Or(s[i].at.Compare(s[j].at), cmp.Compare(s[i].order, s[j].order)) < 0
}

func (s *schedule) Pop() any {
	last := len(*s) - 1
	a := (*s)[last]
	(*s)[last] = arrival{}
	*s = (*s)[:last]
	return a
}

// put adds an arrival and wakes who delivers. The switch's mutex is held, as
// for the other methods.
func (p *port) put(a arrival) {
	heap.Push(&p.waiting, a)
	p.bytes += len(a.frame)
	wake.Up(p.wake)
}

// take removes the arrivals that are due, and returns the time until the next
// one is.
func (p *port) take(now time.Time) (due []arrival, next time.Duration) {
	for len(p.waiting) > 0 && !p.waiting[0].at.After(now) {
		a := heap.Pop(&p.waiting).(arrival)
		p.bytes -= len(a.frame)
		due = append(due, a)
	}
	if len(p.waiting) == 0 {
		return due, time.Hour
	}
	return due, p.waiting[0].at.Sub(now)
}

// drop loses the arrivals from another port.
func (p *port) drop(from string) {
	kept := p.waiting[:0]
	for _, a := range p.waiting {
		if a.from == from {
			p.bytes -= len(a.frame)
			continue
		}
		kept = append(kept, a)
	}
	clear(p.waiting[len(kept):])
	p.waiting = kept
	heap.Init(&p.waiting)
}
