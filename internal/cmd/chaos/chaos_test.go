package main

import (
	"cmp"
	"os"
	"testing"

	"github.com/keyway-go/keyway/internal/test/redistest"
)

// TestChaos is the short form of the campaign, with another seed each time.
// CHAOS_TIME makes it longer, CHAOS_SEED repeats one.
func TestChaos(t *testing.T) {
	redistest.Require(t)
	args := []string{"-t", cmp.Or(os.Getenv("CHAOS_TIME"), "20s")}
	if seed := os.Getenv("CHAOS_SEED"); seed != "" {
		args = append(args, "-seed", seed)
	}
	if err := run(t.Context(), args, t.Output()); err != nil {
		t.Fatal(err)
	}
}
