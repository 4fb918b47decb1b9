package remote

import (
	"flag"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

var most = flag.Int("most", 0, "how many states of a scope to search; 0 for all")

// TestExplore searches every scope to its end for a way to break a promise that is made of locks. Under the race
// detector, which has nothing to find in a search by a single goroutine, it searches a part.
func TestExplore(t *testing.T) { explore(t, scopes(), nil) }

// explore searches scopes, notes in cover which transitions locks take, and reports whether it has searched all to their ends.
func explore(t *testing.T, all []*scope, cover map[transition]int) (ended bool) {
	began, total, ends := time.Now(), 0, 0
	defer debug.SetGCPercent(debug.SetGCPercent(800)) // a search keeps most of what it makes
	for _, sc := range all {
		t.Run(sc.name, func(t *testing.T) {
			s, from := &search{sc: sc, cover: cover}, time.Now()
			if s.limit = *most; underRace {
				s.limit = 500
			}
			out := s.run()
			total += out.states
			t.Logf("%v, %v", out, time.Since(from).Round(10*time.Millisecond))
			if out.err != nil {
				t.Errorf("%v\n%s", out.err, strings.Join(out.trace, "\n"))
			} else if !out.ended && !underRace && *most == 0 {
				t.Error("it did not end")
			}
			if out.ended {
				ends++
			}
		})
	}
	t.Logf("%d states in %d scopes, in %v", total, len(all), time.Since(began).Round(10*time.Millisecond))
	return ends == len(all)
}
