package keyway_test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// The package's page fits two screens, and names every error of calls, which are
// those of package gateway.
func TestPage(t *testing.T) {
	page, err := exec.Command("go", "doc", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	if n := strings.Count(text, "\n"); n > 100 {
		t.Errorf("go doc prints %d lines, want at most 100", n)
	}
	all, err := exec.Command("go", "doc", "-all", "./gateway").Output()
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`(?m)^(?:\t(Err[A-Z]\w*) *=|type (\w+Error) struct)`).FindAllStringSubmatch(string(all), -1)
	if len(names) < 8 {
		t.Errorf("found %d errors, want more", len(names))
	}
	prose, _, _ := strings.Cut(text, "\nvar ")
	for _, found := range names {
		name := found[1] + found[2]
		if !regexp.MustCompile(`\b` + name + `\b`).MatchString(prose) {
			t.Errorf("the package's comment does not name %s", name)
		}
	}
}
