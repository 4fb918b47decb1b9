package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// verdict is what became of a mutation.
type verdict string

const (
	killed    verdict = "killed"    // its test fails
	explained verdict = "explained" // its test passes, as mutation.covered says
	survived  verdict = "SURVIVED"  // its test passes, or fails though it should pass
	broken    verdict = "BROKEN"    // it does not fit the code, or its test fails without it
)

type result struct {
	verdict verdict
	why     string
}

// testTimeout bounds a test that a mutation may leave waiting; see mutation.test.
const testTimeout = 2 * time.Minute

// scratch is a copy of the repository.
type scratch struct{ dir string }

// newScratch copies what git tracks below dir, and what it neither tracks nor
// ignores.
func newScratch(ctx context.Context, dir string) (*scratch, error) {
	list := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = dir
	names, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the repository's files: %w", err)
	}
	to, err := os.MkdirTemp("", "keyway-mutants-")
	if err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		if err := copyFile(filepath.Join(dir, name), filepath.Join(to, name)); err != nil && !os.IsNotExist(err) {
			os.RemoveAll(to)
			return nil, err
		}
	}
	return &scratch{to}, nil
}

func copyFile(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
		return err
	}
	return os.WriteFile(to, text, info.Mode().Perm())
}

// try applies m, runs its test, and takes m back.
func (s *scratch) try(ctx context.Context, m mutation, sound *baseline) result {
	path := filepath.Join(s.dir, m.file)
	text, err := os.ReadFile(path)
	if err != nil {
		return result{broken, err.Error()}
	}
	mutated, err := m.apply(string(text))
	if err != nil {
		return result{broken, err.Error()}
	}
	if err := sound.check(ctx, s, m); err != nil {
		return result{broken, err.Error()}
	}
	if err := os.WriteFile(path, []byte(mutated), 0o666); err != nil {
		return result{broken, err.Error()}
	}
	output, failed := s.test(ctx, m)
	if err := os.WriteFile(path, text, 0o666); err != nil {
		return result{broken, err.Error()}
	}
	return m.judge(output, failed)
}

// apply returns the text of m's file without the rule.
func (m mutation) apply(text string) (string, error) {
	if n := strings.Count(text, m.old); n != 1 {
		return "", fmt.Errorf("what it replaces stands %d times in %s, want once:\n%s", n, m.file, m.old)
	}
	return strings.Replace(text, m.old, m.new, 1), nil
}

// judge says what the outcome of m's test means.
func (m mutation) judge(output string, failed bool) result {
	switch {
	case strings.Contains(output, "[build failed]") || strings.Contains(output, "[setup failed]"):
		return result{broken, "it does not compile:\n" + output}
	case failed && m.covered != "":
		return result{survived, "said to be covered (" + m.covered + "), and yet noticed by " + failures(output)}
	case failed:
		return result{killed, "by " + failures(output)}
	case m.covered != "":
		return result{explained, m.covered}
	}
	return result{survived, "go test " + m.test + " passes without it"}
}

var failure = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)

// failures names the tests that failed.
func failures(output string) string {
	var names []string
	for _, match := range failure.FindAllStringSubmatch(output, -1) {
		names = append(names, match[1])
	}
	if strings.Contains(output, "panic: test timed out") {
		names = append(names, "its time limit")
	}
	if len(names) == 0 {
		names = append(names, "a panic")
	}
	return strings.Join(slices.Compact(names), ", ")
}

// test runs m's test and returns what it printed.
func (s *scratch) test(ctx context.Context, m mutation) (output string, failed bool) {
	args := []string{"test", "-count=1", "-vet=off", "-timeout", testTimeout.String()}
	for arg := range strings.FieldsSeq(m.test) {
		args = append(args, strings.Trim(arg, "'"))
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = s.module(m.file)
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	err := cmd.Run()
	return b.String(), err != nil
}

// module returns the directory of the module that a file belongs to.
func (s *scratch) module(file string) string {
	dir := filepath.Dir(filepath.Join(s.dir, file))
	for dir != s.dir {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	return dir
}

// baseline remembers which tests pass without any mutation, so that none is
// blamed on a rule that was not there.
type baseline struct {
	mu      sync.Mutex // guards results
	results map[string]*baselineResult
}

type baselineResult struct {
	once sync.Once
	err  error
}

func (b *baseline) check(ctx context.Context, s *scratch, m mutation) error {
	id := s.module(m.file)[len(s.dir):] + " " + m.test
	b.mu.Lock()
	r := b.results[id]
	if r == nil {
		r = new(baselineResult)
		b.results[id] = r
	}
	b.mu.Unlock()
	r.once.Do(func() {
		output, failed := s.test(ctx, m)
		switch {
		case failed:
			r.err = fmt.Errorf("go test %s fails without it, too:\n%s", m.test, output)
		case strings.Contains(output, "[no tests to run]") || strings.Contains(output, "[no test files]"):
			r.err = fmt.Errorf("go test %s runs no test", m.test)
		}
	})
	return r.err
}
