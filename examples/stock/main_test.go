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
	err := run(t.Context(), []string{"-for", "500ms"}, &out, t.Output())
	if errors.Is(err, postgres.ErrMissing) {
		needs.Missing(t, err.Error())
	}
	want := regexp.MustCompile(`^with Do: +\d+ sales/s\nwith Batch: +\d+ sales/s, .*\npieces sold and left, less those there were: 0\n$`)
	if err != nil || !want.MatchString(out.String()) {
		t.Errorf("%v, printed:\n%s", err, &out)
	}
}
