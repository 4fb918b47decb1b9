package gossip

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// Bubble runs f in a testing/synctest bubble with a network of its own. f has
// to close what it starts; Bubble then lets the bubble's time pass until what
// closed members leave behind has ended: probes under way, and streams that
// wait for an answer.
//
// It runs on one processor. All timers of a bubble share one context of the
// race detector, but a channel's timer is run by whoever looks at it, so two
// processors corrupt that context and crash the test (seen with Go 1.26.8 and
// some 30 members). The detector finds races on one processor too.
func Bubble(t *testing.T, f func(t *testing.T, n *Network)) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute)
		f(t, NewNetwork(1))
	})
}
