package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// marked is the place of a package's table of traps in a page.
var marked = regexp.MustCompile(`(?s)(<!-- traps of (\S+), from its testdata/mutants.txt -->\n).*?(<!-- end -->\n)`)

// writeTraps makes the tables of traps in a page anew.
func writeTraps(page string, list []mutation) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	return os.WriteFile(page, []byte(marked.ReplaceAllStringFunc(string(text), func(old string) string {
		m := marked.FindStringSubmatch(old)
		return m[1] + table(filepath.FromSlash(m[2]), list) + m[3]
	})), 0o666)
}

// table is what a page says of the traps in a package's list, in its order. It names the package of a test unless that is
// the list's.
func table(pkg string, list []mutation) string {
	var order []string
	tests := make(map[string]string) // by trap
	for _, m := range list {
		if m.trap == "" || m.list != pkg {
			continue
		}
		before, known := tests[m.trap]
		if !known {
			order = append(order, m.trap)
		}
		names := "`" + strings.Join(strings.Fields(m.tests), "`, `") + "`"
		switch {
		case m.pkg != pkg:
			names = "`" + filepath.ToSlash(m.pkg) + "`: " + names
			if known {
				before += "; "
			}
		case known:
			before += ", "
		}
		tests[m.trap] = before + names
	}
	var text strings.Builder
	text.WriteString("| trap | test |\n|---|---|\n")
	for _, trap := range order {
		text.WriteString("| " + trap + " | " + tests[trap] + " |\n")
	}
	return text.String()
}
