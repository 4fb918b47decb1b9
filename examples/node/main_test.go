package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/examples/internal/needs"
)

func TestRun(t *testing.T) {
	needs.Program(t, "node", "nodejs")
	for _, test := range []struct {
		args     []string
		together string
	}{
		{nil, "1"},
		{[]string{"-batch"}, "[1-9][0-9]*"},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			want := regexp.MustCompile("^200 callers, at two apps in Node, got 200 different seats; up to " + test.together + " asked together\n$")
			var out strings.Builder
			if err := run(t.Context(), test.args, &out, t.Output()); err != nil || !want.MatchString(out.String()) {
				t.Errorf("%v, printed:\n%s\nwant:\n%s", err, &out, want)
			}
		})
	}
}
