package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/examples/internal/needs"
)

func TestRun(t *testing.T) {
	needs.Program(t, "python3", "python3")
	for _, test := range []struct {
		args     []string
		together string
	}{
		{nil, "1"},
		{[]string{"-batch"}, "[1-9][0-9]*"},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			want := regexp.MustCompile("^240 buyers of 160 pieces, at two apps in Python: 160 bought one, 80 were told that it is sold out; up to " + test.together + " asked together\n$")
			var out strings.Builder
			if err := run(t.Context(), test.args, &out, t.Output()); err != nil || !want.MatchString(out.String()) {
				t.Errorf("%v, printed:\n%s\nwant:\n%s", err, &out, want)
			}
		})
	}
}
