//go:build linux

package main

import (
	"bytes"
	"regexp"
	"testing"
)

// Both parts are measured, and each call.
func TestLocks(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-t", "200ms", "-callers", "4"}, &out, nil); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", &out)
	call := `\n  TryLock  p50 .*s  p99 .*\n  Unlock   p50 .*s  p99 .*\n`
	if !regexp.MustCompile(`^4 callers, as fast as they can: [1-9]\d* operations/s; server: .*` + call + `4 callers, half of that: [1-9].*` + call + `$`).Match(out.Bytes()) {
		t.Errorf("%q", &out)
	}
}
