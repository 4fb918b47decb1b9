package handoff

import (
	"flag"
	"strings"
	"testing"
	"time"
)

var exploreTime = flag.Duration("explore", 0, "how long the explorer searches each scope that has no end in sight; 0 for a small part of it")

var showTraces = flag.Bool("traces", false, "whether to show how each mutation is found out")

var mutate = flag.String("mutate", "", "part of the names of the only mutations to try")

// TestExplore searches every scope for a way to break a promise of the
// protocol, within what may go wrong there.
func TestExplore(t *testing.T) {
	total, whole, began := 0, 0, time.Now()
	for _, sc := range scopes() {
		s := &search{sc: sc, limit: 12000}
		if *exploreTime > 0 {
			s.limit, s.until = 20e6, time.Now().Add(*exploreTime)
		}
		out := s.run()
		total += out.states
		if out.ended {
			whole++
		}
		t.Logf("%-50s %v", sc.name, out)
		if out.err != nil {
			t.Errorf("%s: %v\n%s", sc.name, out.err, strings.Join(out.trace, "\n"))
		}
	}
	t.Logf("%d states in %d scopes, %d of them to their end, in %v", total, len(scopes()), whole, time.Since(began).Round(time.Second))
}
