package cluster_test

import (
	"strings"
	"testing"

	"github.com/keyway-go/keyway/fallback"
	"github.com/keyway-go/keyway/internal/cluster"
)

// A worker that was given another --redis than the active ones does not become
// ready, and says so.
func TestTwoStores(t *testing.T) {
	programs, err := cluster.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	d := &demo{t: t, programs: programs}
	var join string
	for i, name := range []string{"w1", "w2"} {
		redis, err := fallback.StartEmbedded("127.0.0.1:0", "")
		if err != nil {
			t.Fatal(err)
		}
		defer redis.Close()
		args := []string{"--new-cluster", "--name", name, "--redis", redis.URL(), "--session-ttl", "2s"}
		if i == 0 {
			join = d.start(name, programs.Worker, append(args, "--join", "127.0.0.1:1")...).Gossip
			continue
		}
		p, err := cluster.Start(t.Context(), name, programs.Worker, t.Output(), append(args, "--join", join)...)
		if err == nil {
			t.Cleanup(p.Kill)
			t.Fatal("a worker with a store of its own became ready")
		}
		if !strings.Contains(err.Error(), "store") || !strings.Contains(err.Error(), "--redis") {
			t.Errorf("it does not say why: %v", err)
		}
	}
}
