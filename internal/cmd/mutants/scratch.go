package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// verdict is what became of a mutation.
type verdict string

const (
	killed    verdict = "killed"    // its test fails
	explained verdict = "explained" // its test passes, as mutation.covered says
	survived  verdict = "SURVIVED"  // its test passes, or fails though it should pass
	broken    verdict = "BROKEN"    // it does not fit the code, or its test fails without it
)

// scratch is a copy of the repository.
type scratch struct{ dir string }

// tracked returns the names of the files below dir that git tracks, or neither
// tracks nor ignores.
func tracked(ctx context.Context, dir string) ([]string, error) {
	list := exec.CommandContext(ctx, "git", "-C", dir, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	names, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the repository's files: %w", err)
	}
	return strings.Split(strings.TrimSuffix(string(names), "\x00"), "\x00"), nil
}

// newScratch copies the named files of dir, as far as they exist.
func newScratch(dir string, names []string) (*scratch, error) {
	to, err := os.MkdirTemp("", "keyway-mutants-")
	for _, name := range names {
		if text, missing := os.ReadFile(filepath.Join(dir, name)); missing == nil && err == nil {
			path := filepath.Join(to, name)
			err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, text, 0o777))
		}
	}
	return &scratch{to}, err
}

// try applies m, runs its test, and takes m back.
func (s *scratch) try(ctx context.Context, m mutation, sound *baseline) (v verdict, why string) {
	path := filepath.Join(s.dir, m.file)
	text, err := os.ReadFile(path)
	if err != nil {
		return broken, err.Error()
	}
	mutated, err := m.apply(string(text))
	if err == nil {
		err = sound.check(ctx, s, m)
	}
	if err == nil {
		err = os.WriteFile(path, []byte(mutated), 0o666)
	}
	if err != nil {
		return broken, err.Error()
	}
	output, failed := s.test(ctx, m)
	if err = os.WriteFile(path, text, 0o666); err != nil {
		return broken, err.Error()
	}
	return m.judge(output, failed)
}

// judge says what the outcome of m's test means.
func (m mutation) judge(output string, failed bool) (v verdict, why string) {
	switch {
	case strings.Contains(output, "[build failed]") || strings.Contains(output, "[setup failed]"):
		return broken, "it does not compile:\n" + output
	case failed && m.covered != "":
		return survived, "said to be covered (" + m.covered + "), and yet noticed by " + failures(output)
	case failed:
		return killed, "by " + failures(output)
	case m.covered != "":
		return explained, m.covered
	}
	return survived, m.test + " passes without it"
}

var failure = regexp.MustCompile(`(?m)^--- FAIL: (\S+)|^panic: (test timed out)`)

// failures names the tests that failed.
func failures(output string) string {
	var names []string
	for _, match := range failure.FindAllStringSubmatch(output, -1) {
		names = append(names, match[1]+match[2])
	}
	return cmp.Or(strings.Join(slices.Compact(names), ", "), "a panic")
}

// test runs m's tests and returns what they printed. A mutation may leave them
// waiting for ever.
func (s *scratch) test(ctx context.Context, m mutation) (output string, failed bool) {
	names, subtests, _ := strings.Cut(strings.Join(strings.Fields(m.tests), "|"), "/")
	run := "^(" + names + ")$"
	if subtests != "" {
		run += "/" + subtests
	}
	args := []string{"test", "-count=1", "-vet=off", "-trimpath", "-timeout=2m", ".", "-run", run}
	cmd := exec.CommandContext(ctx, "go", append(args, strings.Fields(m.flags)...)...)
	cmd.Dir = filepath.Join(s.dir, m.pkg)
	text, err := cmd.CombinedOutput()
	return string(text), err != nil
}

// baseline remembers which tests pass without any mutation, so that none is
// blamed on a rule that was not there.
type baseline struct {
	mu      sync.Mutex // guards results
	results map[string]func() error
}

func (b *baseline) check(ctx context.Context, s *scratch, m mutation) error {
	id := m.pkg + ": " + m.test
	b.mu.Lock()
	if b.results[id] == nil {
		b.results[id] = sync.OnceValue(func() error {
			switch output, failed := s.test(ctx, m); {
			case failed:
				return fmt.Errorf("%s fails without it, too:\n%s", id, output)
			case strings.Contains(output, "[no tests to run]"):
				return fmt.Errorf("%s runs no test", id)
			}
			return nil
		})
	}
	result := b.results[id]
	b.mu.Unlock()
	return result()
}
