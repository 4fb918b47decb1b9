package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// example is a repository with two modules and their lists.
var example = map[string]string{
	"go.mod": "module example\n\ngo 1.26\n",
	"p/p.go": "package p\n\nfunc f() int {\n\tif true {\n\t\treturn 1 + 1\n\t}\n\n\treturn 0\n}\n",
	"p/p_test.go": "package p\n\nimport \"testing\"\n\nfunc TestF(t *testing.T) {\n\tt.Run(\"sub\", func(t *testing.T) {\n\t\tif f() != 2 {\n\t\t\tt.Fatal()\n\t\t}\n\t})\n}\n\n" +
		"func TestNot(t *testing.T) { t.Fatal() }\n",
	"in/q/q_windows_test.go": "package q\n\nimport \"testing\"\n\nfunc TestWindows(t *testing.T) {}\n",
	"in/q/q_test.go":         "package q\n",
	"in/go.mod":              "module example/in\n\ngo 1.26\n",
	".gitignore":             "ignored\n",
	"ignored":                "",
	"p/testdata/mutants.txt": `# Of what f returns.

rule: killed
file: p.go
test: TestF
-		return 1 + 1
+		return 1 - 1


rule: survives
file: p.go
test: TestF TestF
-		return 1 + 1
+		return 1 * 2

rule: explained
file: p.go
test: p TestF/sub -short
covered: it is the same
 	if true {
-		return 1 + 1
+		return 1 * 2
 	}
-
+

rule: covered by nothing
file: p.go
test: TestF
covered: it is the same
-		return 1 + 1
+		return 1 - 1

rule: does not compile
file: p.go
test: TestF
-		return 1 + 1
+		return x

rule: its test fails
file: p.go
test: TestNot
-		return 1 + 1
+		return 1 - 1

rule: is tested elsewhere
file: p.go
test: in/q TestWindows
-		return 1 + 1
+		return 1 - 1

trap: a
test: TestF/a TestF/b

trap: c
test: in/q TestWindows

trap: a
test: in/q TestWindows
`,
	"page.md": "# Page\n<!-- traps of p, from its testdata/mutants.txt -->\nold\n<!-- end -->\nrest\n",
}

// tables is what is made of page.md.
const tables = `# Page
<!-- traps of p, from its testdata/mutants.txt -->
| trap | test |
|---|---|
| a | ` + "`TestF/a`, `TestF/b`; `in/q`: `TestWindows`" + ` |
| c | ` + "`in/q`: `TestWindows`" + ` |
<!-- end -->
rest
`

// wrong is lists of p that say something wrong, and what is said of it.
var wrong = map[string]string{
	"rule: a\nfile: p.go\ntest: TestF\n-\treturn 0\n\nrule: a\nfile: p.go\ntest: TestF\n-}\n": `p/testdata/mutants.txt:6: the rule "a" is listed twice`,
	"rule: a\nfile: p.go\ntest: TestF\nwhy: b\n-}\n":                                          "unknown field, or one twice: why: b",
	"rule: a\nfile: p.go\nfile: p.go\ntest: TestF\n-}\n":                                      "unknown field, or one twice: file: p.go",
	"-}\n": "lacks its name",
	"rule: a\nfile: ../p.go\ntest: TestF\n-}\n":      "lacks its name, a file in the package",
	"rule: a\nfile: p.go\ntest: p\n-}\n":             "the name of a test",
	"rule: a\nfile: p.go\ntest: TestF\n-}\n+}\n":     "lines that change something",
	"rule: a\nfile: p.go\ntest: TestF p\n-}\n":       "no test that can be run: TestF p",
	"rule: a\nfile: p.go\ntest: TestF/a TestG\n-}\n": "no test that can be run",
	"rule: a\nfile: q.go\ntest: TestF\n-}\n":         "q.go",
	"rule: a\nfile: p.go\ntest: TestG\n-}\n":         "package p has no TestG",
	"rule: a\nfile: p.go\ntest: TestF\n-return 0\n":  "does not stand exactly once in p/p.go",
	"trap: a\ntest: TestG\n":                         "package p has no TestG",
	"trap: a\n":                                      `the rule "a" lacks its name`,
	"rule: a\nfile: p.go\ntest: TestF\n-\n":          "does not stand exactly once",
}

func TestExample(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(name, text string) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o777), os.WriteFile(name, []byte(text), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range example {
		write(name, text)
	}
	if output, err := exec.Command("git", "init", "-q").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	if names, err := tracked(t.Context(), "."); err != nil || slices.Contains(names, "ignored") || !slices.Contains(names, "p/p.go") {
		t.Errorf("tracked files: %q, %v", names, err)
	}
	call := func(args ...string) (int, string) {
		var out bytes.Buffer
		code := run(t.Context(), args, &out, &out)
		return code, out.String()
	}
	code, out := call("-jobs", "1")
	for _, want := range []string{
		"1/7 killed    killed (p/p.go)\n            by TestF\n", "2/7 SURVIVED  survives (p/p.go)\n            TestF TestF passes without it\n",
		"3/7 explained explained", "4/7 SURVIVED  covered by nothing", "noticed by TestF\n", "5/7 BROKEN    does not compile",
		"6/7 BROKEN    its test fails", "fails without it, too", "7/7 BROKEN    is tested elsewhere", "runs no test",
		"7 mutations: 1 killed, 1 survived as explained, 2 survived, 3 do not fit",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q", want)
		}
	}
	if code != 1 || t.Failed() {
		t.Errorf("exit code %d, want 1:\n%s", code, out)
	}
	if code, out := call("-only", "^(killed|explained)$"); code != 0 {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	if code, out := call("-fit"); code != 0 || out != "7 mutations fit\n" {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	if code, out := call("-traps", "page.md"); code != 0 || out != "" {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	if page, err := os.ReadFile("page.md"); err != nil || string(page) != tables {
		t.Errorf("the page is %q, %v", page, err)
	}
	for list, want := range wrong {
		write("p/testdata/mutants.txt", list)
		if code, out := call(); code != 1 || !strings.Contains(out, want) {
			t.Errorf("%q: exit code %d, want 1 and %q:\n%s", list, code, want, out)
		}
	}
}

// TestPage: the tables of traps in docs/protocol-checks.md are what the lists say.
func TestPage(t *testing.T) {
	t.Chdir("../../..")
	page, err := os.ReadFile("docs/protocol-checks.md")
	if err != nil || !marked.Match(page) {
		t.Fatalf("there is no table of traps: %v", err)
	}
	made := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(made, page, 0o666); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if code := run(t.Context(), []string{"-traps", made}, &out, &out); code != 0 {
		t.Fatalf("exit code %d: %s", code, &out)
	}
	if now, err := os.ReadFile(made); err != nil || !bytes.Equal(now, page) {
		t.Errorf("make the tables anew: go run ./internal/cmd/mutants -traps docs/protocol-checks.md (%v)", err)
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
