package main

import (
	"strings"
	"testing"

	"github.com/keyway-go/keyway/examples/internal/needs"
)

const want = "240 buyers of 160 pieces, at two apps in Python: 160 bought one, 80 were told that it is sold out\n"

func TestRun(t *testing.T) {
	needs.Program(t, "python3", "python3")
	var out strings.Builder
	if err := run(t.Context(), nil, &out, t.Output()); err != nil || out.String() != want {
		t.Errorf("%v, printed:\n%s\nwant:\n%s", err, &out, want)
	}
}
