package locktest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

func TestMain(m *testing.M) {
	if os.Getenv("LOCKTEST_WORKER") != "" {
		if err := worker(); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// length is how long a campaign runs.
func length(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("LOCKTEST_FOR")
	if text == "" {
		return 10 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// verdict checks every key's histories.
func verdict(t *testing.T, lives []life) (lock, resource porcupine.CheckResult) {
	t.Helper()
	histories, err := read(lives)
	if err != nil {
		t.Fatal(err)
	}
	lock, resource = porcupine.Ok, porcupine.Ok
	counts := map[string]int{}
	for key, h := range histories {
		for _, o := range append(h.lock, h.resource...) {
			counts[o.Input.(input).what]++
		}
		if r := porcupine.CheckOperationsTimeout(lockModel, h.lock, time.Minute); r != porcupine.Ok {
			t.Logf("%s: %d operations of the lock: %s", key, len(h.lock), r)
			lock = r
		}
		if r := porcupine.CheckOperationsTimeout(resourceModel.ToModel(), h.resource, time.Minute); r != porcupine.Ok {
			t.Logf("%s: %d operations of the resource: %s", key, len(h.resource), r)
			resource = r
		}
	}
	t.Logf("%d processes in turn, %d keys: %v", len(lives), len(histories), counts)
	return lock, resource
}

func TestHistoriesOfEightProcessesThatAreStoppedAndKilled(t *testing.T) {
	for name, env := range map[string][]string{"plain": nil, "fifo": {"LOCKTEST_FIFO=1"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := campaign{workers: 8, keys: 12, length: length(t), env: env}
			lock, resource := verdict(t, c.run(t))
			if lock != porcupine.Ok || resource != porcupine.Ok {
				t.Errorf("lock: %s, resource: %s", lock, resource)
			}
		})
	}
}

func TestBrokenReleaseIsRejected(t *testing.T) {
	c := campaign{workers: 8, keys: 3, length: min(length(t), 10*time.Second), env: []string{"LOCKTEST_BROKEN=1"}}
	lock, resource := verdict(t, c.run(t))
	if lock != porcupine.Illegal {
		t.Errorf("a lock that frees others' locks is found %s", lock)
	}
	if resource != porcupine.Ok {
		t.Errorf("the fence did not hold: %s", resource)
	}
}
