package remote

import (
	"flag"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"
)

var most = flag.Int("most", 0, "how many states of a scope to search; 0 for all")
var scopeName = flag.String("scope", "", "part of the names of the only scopes to explore; _ stands for a space")

// TestExplore searches every scope to its end for a way to break a promise that is made of locks. Under the race
// detector, which has nothing to find in a search by a single goroutine, it searches a part.
func TestExplore(t *testing.T) {
	all, began := scopes(), time.Now()
	all = slices.DeleteFunc(all, func(sc *scope) bool { return !strings.Contains(sc.name, strings.ReplaceAll(*scopeName, "_", " ")) })
	defer debug.SetGCPercent(debug.SetGCPercent(800)) // a search keeps most of what it makes
	total := 0
	for _, sc := range all {
		s, from := &search{sc: sc}, time.Now()
		if s.limit = *most; underRace {
			s.limit = 500
		}
		out := s.run()
		total += out.states
		t.Logf("%-50s %v, %v", sc.name, out, time.Since(from).Round(10*time.Millisecond))
		if out.err != nil {
			t.Errorf("%s: %v\n%s", sc.name, out.err, strings.Join(out.trace, "\n"))
		} else if !out.ended && !underRace && *most == 0 {
			t.Errorf("%s did not end: %v", sc.name, out)
		}
	}
	t.Logf("%d states in %d scopes, in %v", total, len(all), time.Since(began).Round(10*time.Millisecond))
}
