package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mutation is a rule taken away: lines of a file replaced by others. The tests
// that guard the rule have to fail then. One with a trap alone takes nothing away.
type mutation struct {
	list    string // directory of the package that lists it
	trap    string // mistake that the tests are about, for a page's table; may be empty
	rule    string // what no longer holds, in a few words
	file    string // from the repository's root
	test    string // as the list has it: what pkg, tests and flags say
	covered string // why nothing fails without the rule; empty if its tests do
	old     string // whole lines that stand in file exactly once
	new     string

	pkg   string // directory of the tests
	tests string // names, or one name with "/" and a pattern of subtests
	flags string // of go test
}

// read parses the lists among the named files, with all that is wrong with them.
func read(root string, names []string) (all []mutation, errs error) {
	for _, name := range names {
		pkg, ok := strings.CutSuffix("/"+name, "/testdata/mutants.txt")
		if !ok {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		errs = errors.Join(errs, err)
		seen, next := map[string]bool{}, 1
		for entry := range strings.SplitSeq(string(text), "\n\n") {
			m, number := mutation{}, next
			next += strings.Count(entry, "\n") + 2
			err := m.parse(entry)
			switch {
			case m == mutation{}: // comments
			case err == nil && m.rule != "" && seen[m.rule]:
				err = errors.New("is listed twice")
				fallthrough
			case err != nil:
				errs = errors.Join(errs, fmt.Errorf("%s:%d: the rule %q %w", name, number, cmp.Or(m.rule, m.trap), err))
			default:
				m.list = filepath.Join(".", pkg)
				m.file, m.pkg = filepath.Join(m.list, m.file), cmp.Or(m.pkg, m.list)
				all = append(all, m)
			}
			seen[m.rule] = true
		}
	}
	return all, errs
}

func (m *mutation) parse(entry string) error {
	fields := map[string]*string{"trap": &m.trap, "rule": &m.rule, "file": &m.file, "test": &m.test, "covered": &m.covered}
	for line := range strings.SplitSeq(entry, "\n") {
		name, value, _ := strings.Cut(line, ": ")
		switch field := fields[name]; {
		case line == "" || line[0] == '#':
		case line[0] == '-':
			m.old += line[1:] + "\n"
		case line[0] == '+':
			m.new += line[1:] + "\n"
		case line[0] == ' ':
			m.old += line[1:] + "\n"
			m.new += line[1:] + "\n"
		case field == nil || *field != "":
			return fmt.Errorf("has an unknown field, or one twice: %s", line)
		default:
			*field = value
		}
	}
	for word := range strings.FieldsSeq(m.test) {
		switch isTest := strings.HasPrefix(word, "Test") || strings.HasPrefix(word, "Fuzz"); {
		case m.flags != "" || word[0] == '-':
			m.flags += word + " "
		case isTest && (m.rule == "" || !strings.Contains(m.tests, "/")):
			m.tests += word + " "
		case isTest || m.pkg+m.tests != "":
			return fmt.Errorf("has no test that can be run: %s", m.test)
		default:
			m.pkg = word
		}
	}
	if m.trap != "" && *m == (mutation{trap: m.trap, test: m.test, pkg: m.pkg, tests: m.tests}) && m.tests != "" {
		return nil
	}
	if *m != (mutation{}) && (m.rule == "" || m.tests == "" || m.old == m.new || !filepath.IsLocal(m.file)) {
		return errors.New("lacks its name, a file in the package, the name of a test or lines that change something")
	}
	return nil
}

// fits returns an error unless m fits the code below root: its lines stand in
// the file once, and its tests exist.
func (m mutation) fits(root string) error {
	var err error
	if m.rule != "" {
		var text []byte
		if text, err = os.ReadFile(filepath.Join(root, m.file)); err == nil {
			_, err = m.apply(string(text))
		}
	}
	files, _ := filepath.Glob(filepath.Join(root, m.pkg, "*_test.go"))
	for test := range strings.FieldsSeq(m.tests) {
		name, _, _ := strings.Cut(test, "/")
		if !slices.ContainsFunc(files, func(file string) bool {
			code, _ := os.ReadFile(file)
			return bytes.Contains(code, []byte("\nfunc "+name+"("))
		}) {
			err = errors.Join(err, fmt.Errorf("package %s has no %s", m.pkg, name))
		}
	}
	return err
}

// apply returns the text of m's file without the rule.
func (m mutation) apply(text string) (string, error) {
	text = "\n" + text
	i := strings.Index(text, "\n"+m.old)
	if i < 0 || i != strings.LastIndex(text, "\n"+m.old) {
		return "", fmt.Errorf("what it takes away does not stand exactly once in %s:\n%s", m.file, m.old)
	}
	return text[1:i+1] + m.new + text[i+1+len(m.old):], nil
}
