package main

import (
	"cmp"
	"os"
	"testing"

	"github.com/keyway-go/keyway/internal/test/redistest"
)

// TestMain makes the other processes of this program.
func TestMain(m *testing.M) {
	if os.Getenv(lockClientEnv) != "" {
		os.Exit(Main())
	}
	os.Exit(m.Run())
}

// TestChaos is the short form of the campaign, with another seed each time.
// CHAOS_TIME makes it longer, CHAOS_SEED repeats one.
func TestChaos(t *testing.T) { testChaos(t) }

// TestChaosDoors is that with requests that take the workers' own doors, and placements at random.
func TestChaosDoors(t *testing.T) { testChaos(t, "-doors", "-place") }

func testChaos(t *testing.T, args ...string) {
	redistest.Require(t)
	args = append(args, "-lockers", "200", "-grant", "5s", "-t", cmp.Or(os.Getenv("CHAOS_TIME"), "20s"))
	if seed := os.Getenv("CHAOS_SEED"); seed != "" {
		args = append(args, "-seed", seed)
	}
	if err := run(t.Context(), args, t.Output(), t.Output()); err != nil {
		t.Fatal(err)
	}
}
