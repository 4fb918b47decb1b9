package worker

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/test/kit"
)

// BenchmarkMetricsOfRequest is all that is counted of a request whose key is free, and of one
// that has to wait for its key, which is one of few or of many: of a thousand keys most find
// no place in the sketch of hot keys.
func BenchmarkMetricsOfRequest(b *testing.B) {
	for _, c := range []struct {
		name   string
		waited bool
		keys   int64
	}{{"free", false, 1000}, {"waited, 100 keys", true, 100}, {"waited, 1000 keys", true, 1000}} {
		b.Run(c.name, func(b *testing.B) {
			keys := make([]string, c.keys)
			for i := range keys {
				keys[i] = fmt.Sprint("customer-", i)
			}
			w := &Worker{base: time.Now()}
			w.hot.init(func(string) int { return 0 })
			var number atomic.Int64
			kit.ReportCPU(b)
			b.RunParallel(func(pb *testing.PB) {
				p := &partition{worker: w, number: int(number.Add(1))}
				r := &run{part: p, timeout: time.Second}
				for token := int64(1); pb.Next(); token++ {
					key := keys[token%c.keys]
					if c.waited {
						came := w.now()
						w.hot.taken(key, came)
						w.counts.waited(p, w.now()-came)
					}
					if p.sampled(token) {
						r.look(key, c.waited)
					}
					execution{run: r}.bound(time.Second)
					w.counts.ran(r)
				}
			})
		})
	}
}
