//go:build linux

package load

import (
	"math/bits"
	"time"
)

// Each power of two of nanoseconds has 2^fine counters: values are kept to
// within 1.6 %.
const (
	fine     = 6
	counters = (64 - fine) << fine
)

// histogram counts durations. The zero value is empty.
type histogram struct {
	count  int64
	counts [counters]int64
}

func (h *histogram) add(d time.Duration) {
	h.count++
	h.counts[slot(uint64(max(d, 0)))]++
}

func (h *histogram) merge(o *histogram) {
	h.count += o.count
	for i, n := range o.counts {
		h.counts[i] += n
	}
}

// quantile returns the duration below which a share q of the values lies; 0 if
// there are none.
func (h *histogram) quantile(q float64) time.Duration {
	rank := int64(q * float64(h.count))
	for i, n := range h.counts {
		if rank -= n; rank < 0 {
			return middle(i)
		}
	}
	return 0
}

func slot(v uint64) int {
	shift := max(bits.Len64(v)-1-fine, 0)
	return shift<<fine + int(v>>shift)
}

// middle returns the middle of what a slot counts.
func middle(i int) time.Duration {
	shift := max(i>>fine-1, 0)
	low := uint64(i-shift<<fine) << shift
	return time.Duration(low + 1<<shift>>1)
}
