package main

import (
	"regexp"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	var out strings.Builder
	err := run(t.Context(), nil, &out, t.Output())
	want := regexp.MustCompile(`^\d+ transfers, \d+ refused for want of money: 1000 on all accounts before, 1000 after\n$`)
	if err != nil || !want.MatchString(out.String()) {
		t.Errorf("%v, printed:\n%s", err, &out)
	}
}
