package worker_test

import (
	"testing"

	"github.com/keyway-go/keyway/internal/test/site"
)

// TestIdleWorkersInVirtualTime: what an idle worker asks of the store does not depend on how many
// others there are. It makes five looks and five renewals in a TTL.
func TestIdleWorkersInVirtualTime(t *testing.T) {
	for _, n := range []int{3, 12} {
		want := site.Calls{Looks: 10 * n, Renewals: 10 * n}
		if got := site.Grow(t, n).Idle; got != want {
			t.Errorf("in 20 s, %d idle workers make %+v, want %+v", n, got, want)
		}
	}
}
