// Package examples_test holds README.md to what is there.
package examples_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// README.md has the command of every example.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	mains, err := filepath.Glob("*/main.go")
	if err != nil || len(mains) == 0 {
		t.Fatalf("found %v, %v", mains, err)
	}
	commands := strings.Count(string(readme), "`go -C examples run ./")
	if commands != len(mains) {
		t.Errorf("%d commands in README.md for %d programs", commands, len(mains))
	}
	for _, path := range mains {
		name := filepath.Dir(path)
		if command := "`go -C examples run ./" + name + "`"; !strings.Contains(string(readme), command) {
			t.Errorf("README.md lacks %s", command)
		}
	}
}
