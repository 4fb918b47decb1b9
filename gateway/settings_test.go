package gateway_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/fallback"
	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/hub"
	"github.com/keyway-go/keyway/ring"
)

// A store that was opened with other settings than the members have is no
// store for their worker: two such workers would share a ring and not a store.
func TestTrapStoreOfOtherSettings(t *testing.T) {
	for setting, settings := range map[string]ring.Settings{
		"cluster name":         {Cluster: "default"},
		"number of partitions": {Ring: ring.Config{Partitions: 64}},
		"session TTL":          {TTL: time.Minute},
	} {
		h := must(hub.New(ring.Settings{}))
		member := must(h.Join(ring.Member{Name: "w", Role: ring.RoleWorker, State: ring.StateJoining}))
		_, err := gateway.StartWorker(gateway.WorkerConfig{
			Members: member, Store: fallback.NewMemory(fallback.MemoryOptions{Settings: settings}), Name: "w", Addr: "w:80",
		})
		if !errors.Is(err, gateway.ErrSettings) || !strings.Contains(err.Error(), setting) {
			t.Errorf("%s: %v", setting, err)
		}
	}
}
