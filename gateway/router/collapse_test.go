package router_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// Equal reads of a route that shares, which wait for their key, run once, whichever
// way they go.
func TestEqualReadsRunOnce(t *testing.T) {
	var runs atomic.Int64
	held, goOn := make(chan struct{}), make(chan struct{})
	app := func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			held <- struct{}{}
			<-goOn
			return
		}
		fmt.Fprint(rw, "run ", runs.Add(1))
	}
	table := site.Routes(t, `name: a, key: "header:X-Key", mode: share`)
	for _, e := range entrances(t, app, func(rc *router.Config, _ *worker.Config) { rc.Keys, rc.Routes = nil, table }) {
		if !strings.Contains(e.name, ", link") {
			continue // what does not come from a member has no route that says how it runs
		}
		t.Run(e.name, func(t *testing.T) {
			runs.Store(0)
			var all sync.WaitGroup
			all.Go(func() { e.send(t, "GET", "/hold", nil, "") })
			<-held
			const readers = 5
			answers := make([]string, readers)
			for i := range answers {
				all.Go(func() { answers[i] = e.send(t, "GET", "/page", nil, "") })
			}
			kit.Eventually(t, "all wait for the key", func() bool { return e.worker.Queued("k") == readers })
			goOn <- struct{}{}
			all.Wait()
			for _, a := range answers {
				if a != answers[0] || !strings.Contains(a, "run 1") {
					t.Errorf("%q, want the answer to the first: %q", a, answers[0])
				}
			}
		})
	}
}
