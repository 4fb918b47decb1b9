package main

import (
	"strings"
	"testing"
)

// TestRun runs every contestant for a moment and looks at the table.
func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run([]string{"-rounds", "1", "-time", "10ms"}, &out); err != nil {
		t.Fatal(err)
	}
	for _, c := range contestants() {
		if !strings.Contains(out.String(), c.name) {
			t.Errorf("no row for %s in\n%s", c.name, out.String())
		}
	}
}
