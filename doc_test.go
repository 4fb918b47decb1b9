package keyway_test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// The package's page fits two screens, and names every error that the package
// exports.
func TestPage(t *testing.T) {
	page, err := exec.Command("go", "doc", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	if n := strings.Count(text, "\n"); n > 100 {
		t.Errorf("go doc prints %d lines, want at most 100", n)
	}
	all, err := exec.Command("go", "doc", "-all", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`(?m)^(?:type |var |\t)((?:Err[A-Z]\w*)|(?:\w+Error)) *=`).FindAllStringSubmatch(string(all), -1)
	if len(names) < 8 {
		t.Errorf("found %d errors, want more", len(names))
	}
	prose, _, _ := strings.Cut(text, "\nvar ")
	for _, name := range names {
		if !regexp.MustCompile(`\b` + name[1] + `\b`).MatchString(prose) {
			t.Errorf("the package's comment does not name %s", name[1])
		}
	}
}
