package keyway_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/internal/status"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/ring"
)

// TestKeyOfDeath: requests of one key kill two nodes, one after the other. The third node refuses that
// key alone, until an operator releases it.
func TestKeyOfDeath(t *testing.T) {
	at, dir := kit.FreeAddr(t), t.TempDir()
	cfg := config(t, "stays", at)
	cfg.Settings, cfg.NewCluster = processes, true
	cfg.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "stays") })
	stays := start(t, cfg)
	for _, name := range []string{"n0", "n1"} {
		if _, err := startProcess(t, name, at, dir); err != nil {
			t.Fatal(err)
		}
	}
	client, err := keyway.NewClient(t.Context(), keyway.ClientConfig{Join: []string{at}, Settings: processes})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	after := func(names ...string) *ring.Table { return kit.Must(ring.New(processes.Ring, names)) }
	all, without := after("n0", "n1", "stays"), after("n1", "stays")
	key := ""
	for i := 0; key == ""; i++ {
		candidate := fmt.Sprint("poison-", i)
		p := processes.Ring.Partition(candidate)
		first, _ := all.Owner(p)
		second, _ := without.Owner(p)
		if first == "n0" && second == "n1" {
			key = candidate
		}
	}
	kit.Eventually(t, "the nodes are together", func() bool { owner, err := client.Owner(key); return err == nil && owner.Name == "n0" })

	for range 2 {
		if name, err := callPath(t.Context(), client, "/die", key); !errors.Is(err, keyway.ErrMayHaveRun) {
			t.Fatalf("a request that kills its node: %q, %v", name, err)
		}
	}
	if name, err := call(t.Context(), client, key); err == nil || !strings.Contains(err.Error(), "503 workers have crashed while requests for this key ran") {
		t.Fatalf("the next request: %q, %v", name, err)
	}
	for i := range 20 {
		if name, err := call(t.Context(), client, fmt.Sprint("other-", i)); err != nil || name != "stays" {
			t.Errorf("another key: %q, %v", name, err)
		}
	}
	operator := client.Operator()
	if e, err := operator.Explain(t.Context(), key); err != nil || !strings.Contains(strings.Join(e.Verdict, " "), "The key is quarantined for another ") {
		t.Errorf("explained by %+v, %v", e, err)
	}
	kit.Eventually(t, "the operator sees the key", func() bool {
		for _, w := range operator.Workers(t.Context()) {
			if w.Name == "stays" && w.Status != nil && len(w.Status.Quarantined) == 1 && w.Status.Quarantined[0].Key == key {
				return true
			}
		}
		return false
	})
	if err := operator.Release(t.Context(), "other-1", "test"); !errors.Is(err, status.ErrNotQuarantined) {
		t.Errorf("release of another key: %v", err)
	}
	if err := operator.Release(t.Context(), key, "test"); err != nil {
		t.Fatal(err)
	}
	kit.Eventually(t, "the key is free", func() bool { name, err := call(t.Context(), client, key); return err == nil && name == "stays" })
	if err := stays.Do(t.Context(), key, func(keyway.Execution) error { return nil }); err != nil {
		t.Error(err)
	}
}
