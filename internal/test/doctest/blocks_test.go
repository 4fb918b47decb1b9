package doctest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/internal/routes"
)

const root = "../../.."

// block is a fenced block of a document.
type block struct {
	file string // from the repository's root
	line int    // of its fence
	kind string // sh, console, go or text
	text string
}

// documents returns README.md and all of docs/, by path from the root.
func documents(t *testing.T) map[string]string {
	t.Helper()
	paths := []string{filepath.Join(root, "README.md")}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	texts := make(map[string]string)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[strings.TrimPrefix(filepath.ToSlash(path), root+"/")] = string(text)
	}
	return texts
}

// blocks returns the blocks of one kind, in their order within each document.
func blocks(t *testing.T, kind string) []block {
	t.Helper()
	var all []block
	for file, text := range documents(t) {
		for _, b := range split(file, text) {
			if b.kind == kind {
				all = append(all, b)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b block) int { return strings.Compare(a.file, b.file) })
	return all
}

func split(file, text string) []block {
	var all []block
	var open *block
	for i, line := range strings.Split(text, "\n") {
		kind, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && open == nil:
			open = &block{file: file, line: i + 1, kind: kind}
		case fence:
			all = append(all, *open)
			open = nil
		case open != nil:
			open.text += line + "\n"
		}
	}
	return all
}

// Each block says what it is, so that none is forgotten: what can be run or
// compiled is, by the tests of this package.
func TestBlocksSayWhatTheyAre(t *testing.T) {
	indented := regexp.MustCompile(`\n\n( {4}|\t)[^ \t]`)
	for file, text := range documents(t) {
		for _, b := range split(file, text) {
			if !slices.Contains([]string{"sh", "console", "go", "yaml", "bash", "python", "js", "java", "diff", "text"}, b.kind) {
				t.Errorf("%s:%d: a block of %q; write ```sh, ```console, ```go, ```yaml, ```bash, ```python, ```js, ```java, ```diff, or ```text for what is neither run nor compiled", file, b.line, b.kind)
			}
		}
		if at := indented.FindStringIndex(text); at != nil {
			t.Errorf("%s: an indented block; fence it: %.60q", file, strings.TrimSpace(text[at[0]:]))
		}
	}
}

// Each block of YAML is a file of routes without a mistake.
func TestRoutesOfDocuments(t *testing.T) {
	all := blocks(t, "yaml")
	for _, b := range all {
		if _, err := routes.Parse(b.file, []byte(b.text)); err != nil {
			t.Errorf("line %d: %v", b.line, err)
		}
	}
	if len(all) < 2 {
		t.Errorf("found %d blocks of YAML", len(all))
	}
}

// Every make target that a document names exists.
func TestMakeTargetsExist(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("(?m)(?:`|^)make ([a-z0-9-]+)")
	found := 0
	for file, text := range documents(t) {
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			found++
			if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(m[1]) + `:`).Match(makefile) {
				t.Errorf("%s names make %s, which the Makefile does not have", file, m[1])
			}
		}
	}
	if found < 5 {
		t.Errorf("found %d make targets in the documents", found)
	}
}

// TestTables: no empty line cuts a table in two, of which the second one would be shown as text.
func TestTables(t *testing.T) {
	for file, text := range documents(t) {
		lines := strings.Split(text, "\n")
		for i := 2; i+1 < len(lines); i++ {
			isRow := func(i int) bool { return strings.HasPrefix(lines[i], "| ") }
			if isRow(i-2) && lines[i-1] == "" && isRow(i) && !strings.HasPrefix(lines[i+1], "|--") {
				t.Errorf("%s:%d: an empty line cuts the table", file, i)
			}
		}
	}
}
