package fallback

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/netproxy"
	"github.com/keyway-go/keyway/internal/test/redistest"
)

// A machine is lost that a primary and a Sentinel ran on: neither answers, and no connection is closed. A client whose
// calls have short deadlines learns of the new primary from other Sentinels. Once it is closed, it has no connection left.
func TestTrapSilentSentinel(t *testing.T) {
	t.Parallel()
	group := redistest.StartSentinel(t)
	var ways []*netproxy.Proxy // to the one Sentinel, as if there were three
	addrs := []string{"redis-sentinel://127.0.0.1?master=keyway"}
	for range 3 {
		way := kit.Must(netproxy.New(group.Watcher.Addr()))
		t.Cleanup(func() { way.Close() })
		ways = append(ways, way)
		addrs = append(addrs, way.Addr())
	}
	client := kit.Must(NewClient(strings.Join(addrs, "&addr=")))
	defer client.Close()
	set := func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return client.Set(ctx, "k", "v", 0).Err() == nil
	}
	kit.Eventually(t, "the primary takes a write", set)
	old := group.Master()
	old.Pause()
	for _, d := range []netproxy.Direction{netproxy.ToServer, netproxy.ToClient} {
		ways[0].Set(d, netproxy.Fault{Stall: true})
		ways[1].Set(d, netproxy.Fault{Stall: true})
	}
	kit.Eventually(t, "the new primary takes a write", set)
	if group.Master() == old {
		t.Error("the old primary has taken the write")
	}
	client.Close()
	for _, way := range ways[:2] {
		way.Heal() // else it holds the end of a connection back behind what it stalls
	}
	kit.Eventually(t, "the Sentinel has no client left", func() bool {
		return !strings.Contains(group.Watcher.CLI("client", "list"), "name=keyway")
	})
}
