package trial

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Judgement is what a trial has shown.
type Judgement struct {
	Violations     []string
	Found, Excused [Kinds]int
	Operations     int
	Bad            map[string]string // keys whose history is not that of a counter, and why
}

// historyTimeout bounds what porcupine takes; a history that it cannot judge
// by then is a violation.
const historyTimeout = 2 * time.Minute

// Judge compares what clients and observer have seen. A finding is no violation if excuse says that
// it is excused; if it is also beyond, the history of its key is not judged.
func Judge(requests []*Request, seen Record, excuse func(Finding) (excused, beyond bool)) *Judgement {
	ops, wrong := Operations(requests, seen)
	j := &Judgement{Operations: len(ops), Bad: Linearizable(ops, historyTimeout)}
	outside := make(map[string]bool) // keys
	for _, f := range slices.Concat(seen.Findings, wrong) {
		j.Found[f.Kind]++
		if excused, beyond := excuse(f); excused {
			j.Excused[f.Kind]++
			outside[f.Key] = outside[f.Key] || beyond
			continue
		}
		j.Violate("%.3fs %s of %s: %s", f.At.Seconds(), f.Kind, f.Key, f.Detail)
	}
	for key, why := range j.Bad {
		if !outside[key] {
			j.Violate("the history of %s is not that of a counter: %s", key, why)
		}
	}
	return j
}

// Violate notes that a promise was broken.
func (j *Judgement) Violate(format string, args ...any) {
	j.Violations = append(j.Violations, fmt.Sprintf(format, args...))
}

// printed is how many violations are printed; the file has them all.
const printed = 20

// Verdict prints the violations, and returns an error if there are any. A file in dir has them all, and more.
func (j *Judgement) Verdict(out io.Writer, seed int64, dir, more string) error {
	if len(j.Violations) == 0 {
		fmt.Fprintf(out, "no violation (seed %d)\n", seed)
		return nil
	}
	for _, v := range j.Violations[:min(len(j.Violations), printed)] {
		fmt.Fprintln(out, "VIOLATION:", v)
	}
	file := filepath.Join(dir, "violations.txt")
	err := os.WriteFile(file, []byte(strings.Join(j.Violations, "\n")+"\n"+more), 0o644)
	return errors.Join(err, fmt.Errorf("a promise was broken: %d violations (seed %d), see %s", len(j.Violations), seed, file))
}
