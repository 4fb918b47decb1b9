package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Every mutation still fits the code, as the code is now.
func TestMutationsFit(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range mutations() {
		id := m.file + ": " + m.rule
		if seen[id] || m.rule == "" || m.old == m.new || !strings.HasPrefix(m.test, "./") {
			t.Errorf("%s: listed twice or not in full", id)
		}
		seen[id] = true
		text, err := os.ReadFile(filepath.Join("../../..", m.file))
		if err != nil {
			t.Errorf("%s: %v", id, err)
		} else if _, err := m.apply(string(text)); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
}

func TestTry(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":      "module example\n\ngo 1.26\n",
		"p.go":        "package p\n\nfunc f() int { return 1 + 1 }\n",
		"p_test.go":   "package p\n\nimport \"testing\"\n\nfunc TestF(t *testing.T) {\n\tif f() != 2 {\n\t\tt.Fatal()\n\t}\n}\n\nfunc TestNot(t *testing.T) { t.Fatal() }\n",
		"in/q/q.go":   "package q\n",
		"in/go.mod":   "module example/in\n\ngo 1.26\n",
		".gitignore":  "ignored\n",
		"ignored":     "",
		"in/q/q.text": "",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	git := exec.Command("git", "init", "-q")
	git.Dir = dir
	if output, err := git.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	s, err := newScratch(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(s.dir)
	if _, err := os.Stat(filepath.Join(s.dir, "ignored")); err == nil {
		t.Error("an ignored file was copied")
	}
	if got := s.module("in/q/q.go"); got != filepath.Join(s.dir, "in") {
		t.Errorf("the module of in/q/q.go is in %s", got)
	}

	const test = "./... -run '^TestF$'"
	tests := []struct {
		m       mutation
		verdict verdict
		why     string
	}{
		{mutation{file: "p.go", old: "1 + 1", new: "1 - 1", test: test}, killed, "by TestF"},
		{mutation{file: "p.go", old: "1 + 1", new: "1 * 2", test: test}, survived, "passes without it"},
		{mutation{file: "p.go", old: "1 + 1", new: "1 * 2", test: test, covered: "the same"}, explained, "the same"},
		{mutation{file: "p.go", old: "1 + 1", new: "1 - 1", test: test, covered: "the same"}, survived, "noticed by TestF"},
		{mutation{file: "p.go", old: "1", new: "2", test: test}, broken, "stands 2 times"},
		{mutation{file: "p.go", old: "1 + 1", new: "x", test: test}, broken, "does not compile"},
		{mutation{file: "p.go", old: "1 + 1", new: "1 - 1", test: "./... -run '^TestNot$'"}, broken, "fails without it, too"},
		{mutation{file: "p.go", old: "1 + 1", new: "1 - 1", test: "./... -run '^TestNone$'"}, broken, "runs no test"},
		{mutation{file: "none.go", test: test}, broken, "none.go"},
	}
	sound := &baseline{results: map[string]*baselineResult{}}
	for _, tt := range tests {
		if r := s.try(t.Context(), tt.m, sound); r.verdict != tt.verdict || !strings.Contains(r.why, tt.why) {
			t.Errorf("%+v: %s, %s; want %s, %s", tt.m, r.verdict, r.why, tt.verdict, tt.why)
		}
	}
	if text, _ := os.ReadFile(filepath.Join(s.dir, "p.go")); !strings.Contains(string(text), "1 + 1") {
		t.Error("the last mutation was not taken back")
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"-only", "("}, {"-jobs", "0"}, {"x"}, {"-none"}} {
		var stderr bytes.Buffer
		if code := run(t.Context(), args, &stderr, &stderr); code != 2 || stderr.Len() == 0 {
			t.Errorf("%q: exit code %d, %q", args, code, &stderr)
		}
	}
}
