//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// profileTurn records where the proxy spends its time in a turn of its own, and
// prints the command that shows it.
func (h *hop) profileTurn(s scenario, name string) error {
	if err := os.MkdirAll(h.profile, 0o755); err != nil {
		return err
	}
	file := filepath.Join(h.profile, strings.NewReplacer(" ", "", ",", "-", "/", "").Replace(s.name+"-"+name)) + ".perf"
	_, _, err := h.watched(s, name, func(pids string) []string {
		return []string{"perf", "record", "-q", "-e", "cpu-clock", "-F", "1999", "-g", "-o", file, "-p", pids}
	})
	fmt.Fprintf(h.out, "  %s: perf report -g none --no-children -i %s\n", name, file)
	return err
}
