package handoff

import (
	"strings"
	"testing"
	"time"
)

func TestExplore(t *testing.T) {
	for _, sc := range scopes() {
		t.Run(strings.ReplaceAll(sc.name, " ", "-"), func(t *testing.T) {
			t0 := time.Now()
			s := &search{sc: sc, ttl: ttl, limit: 100000}
			out := s.run()
			t.Logf("%v, %d fair runs, %v", out, out.fair, time.Since(t0))
			if out.err != nil {
				t.Errorf("%v\n%s", out.err, strings.Join(out.trace, "\n"))
			}
		})
	}
}
