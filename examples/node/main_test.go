package main

import (
	"strings"
	"testing"

	"github.com/keyway-go/keyway/examples/internal/needs"
)

const want = "200 callers, at two apps in Node, got 200 different seats\n"

func TestRun(t *testing.T) {
	needs.Program(t, "node", "nodejs")
	var out strings.Builder
	if err := run(t.Context(), nil, &out, t.Output()); err != nil || out.String() != want {
		t.Errorf("%v, printed:\n%s\nwant:\n%s", err, &out, want)
	}
}
