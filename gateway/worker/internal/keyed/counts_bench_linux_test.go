package keyed

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
			names := make([]string, c.keys)
			for i := range names {
				names[i] = fmt.Sprint("customer-", i)
			}
			k := New(Config{})
			k.hot.queued = func(string) int { return 0 }
			var number atomic.Int64
			kit.ReportCPU(b)
			b.RunParallel(func(pb *testing.PB) {
				p := &Partition{keys: k, Number: int(number.Add(1))}
				r := &run{admission: admission{part: p, timeout: time.Second}}
				for token := int64(1); pb.Next(); token++ {
					key := names[token%c.keys]
					if c.waited {
						came := k.Now()
						k.hot.add(key, 1, came)
						p.Waited(k.Now() - came)
					}
					if p.sampled(token) {
						r.noteStart(key, c.waited)
					}
					Execution{run: r}.Bound(time.Second)
					k.Counts.ran(r)
				}
			})
		})
	}
}
