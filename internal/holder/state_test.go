package holder

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestTransitions tries every pair of values: those in the tables pass, and all others are refused by the functions that
// write the values.
func TestTransitions(t *testing.T) {
	for from := range states {
		for to := range states {
			l := Lock{state: from}
			if got := writes(func() { l.setState(to) }); got != stateNext[from][to] {
				t.Errorf("state %v to %v: allowed %v", from, to, got)
			}
		}
	}
	for from := range courses {
		for to := range courses {
			l := Lock{course: from}
			if got := writes(func() { l.setCourse(to) }); got != courseNext[from][to] {
				t.Errorf("course %v to %v: allowed %v", from, to, got)
			}
		}
	}
}

// TestTransitionsAreDocumented sees that the package doc shows what the tables allow.
func TestTransitionsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(text)
	for from := range states {
		for to := range states {
			if line := fmt.Sprintf("%v → %v ", from, to); stateNext[from][to] != strings.Contains(doc, line) {
				t.Errorf("package doc and table disagree about %q", line)
			}
		}
	}
	for from := range courses {
		for to := range courses {
			if line := fmt.Sprintf("%v → %v ", from, to); courseNext[from][to] != strings.Contains(doc, line) {
				t.Errorf("package doc and table disagree about %q", line)
			}
		}
	}
}

func writes(f func()) (ok bool) {
	defer func() { ok = recover() == nil }()
	f()
	return
}

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	see := func(s fmt.Stringer) {
		if seen[s.String()] || s.String() == "" {
			t.Errorf("%T %d is called %q", s, s, s)
		}
		seen[s.String()] = true
	}
	for s := range states {
		see(s)
	}
	for c := range courses {
		see(c)
	}
}
