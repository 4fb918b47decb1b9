package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/keyway-go/keyway/internal/test/redistest"
)

// TestMain makes the other processes of the scenarios of this program.
func TestMain(m *testing.M) {
	if part := partOf(os.Getenv); part != nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		if err := part(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// TestTransfers is the short form of that scenario.
func TestTransfers(t *testing.T) {
	redistest.Require(t)
	if err := run(t.Context(), []string{"-scenario", "transfers", "-t", cmp.Or(os.Getenv("CHAOS_TIME"), "15s")}, t.Output(), t.Output()); err != nil {
		t.Fatal(err)
	}
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
