// Package needs skips the tests of examples whose programs are not installed.
package needs

import (
	"os"
	"os/exec"
	"testing"
)

// Program skips the test if there is no such program; with CI=true it fails.
func Program(t testing.TB, name, debian string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		Missing(t, name+" is not installed (Debian: apt-get install "+debian+")")
	}
}

// Missing skips the test for that reason; with CI=true it fails.
func Missing(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}
