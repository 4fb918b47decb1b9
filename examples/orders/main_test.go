package main

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/examples/internal/needs"
	"github.com/keyway-go/keyway/internal/cluster/postgres"
)

func TestRun(t *testing.T) {
	var out strings.Builder
	err := run(t.Context(), nil, &out, t.Output())
	if errors.Is(err, postgres.ErrMissing) {
		needs.Missing(t, err.Error())
	}
	want := regexp.MustCompile(`^100 orders: \d+ shipped, \d+ refunded, 0 both\na write with the token \d+, after one with \d+, was refused\n$`)
	if err != nil || !want.MatchString(out.String()) {
		t.Errorf("%v, printed:\n%s", err, &out)
	}
}
