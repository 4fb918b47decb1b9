package doctest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	code    = regexp.MustCompile("(?ms)^```.*?^```")
	inWords = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors returns what links to a document's headings may name, as the code host makes them of the headings.
func anchors(text string) map[string]bool {
	all := make(map[string]bool)
	for _, h := range heading.FindAllStringSubmatch(code.ReplaceAllString(text, ""), -1) {
		title := link.ReplaceAllString(h[1], "")
		all[strings.ReplaceAll(inWords.ReplaceAllString(strings.ToLower(title), ""), " ", "-")] = true
	}
	return all
}

// TestLinks: what a document links to in this repository is there, with the heading that the link names.
func TestLinks(t *testing.T) {
	paths := []string{"examples/README.md"}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/decisions/*.md", ".github/*.md"} {
		paths = append(paths, glob(t, pattern)...)
	}
	found := 0
	for _, path := range paths {
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(read(t, path), ""), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			found++
			file, anchor, _ := strings.Cut(m[1], "#")
			target := path
			if file != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(path), file))
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s links to %s: %v", path, m[1], err)
			} else if anchor != "" && !anchors(read(t, target))[anchor] {
				t.Errorf("%s links to %s: %s has no such heading", path, m[1], target)
			}
		}
	}
	if found < 100 {
		t.Errorf("found %d links", found)
	}
}
