// Package golden plays the transcripts in testdata of a package: scenarios, with what the package then does.
package golden

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the transcripts in testdata")

// Play plays each transcript, as a subtest. play gets the text of a transcript and returns it with what happens now, which has
// to be the same; with -update it is written down instead.
func Play(t *testing.T, play func(t *testing.T, text string) []byte) {
	files, err := filepath.Glob("testdata/[0-9]*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(want))
			switch {
			case bytes.Equal(got, want):
			case *update:
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			default:
				t.Errorf("something else happens now (-update accepts it), from line %d on:\n%s", 1+alike(got, want), got)
			}
		})
	}
}

// alike returns in how many lines two texts begin alike.
func alike(a, b []byte) (n int) {
	for line := range bytes.Lines(a) {
		if !bytes.HasPrefix(b, line) {
			break
		}
		b = b[len(line):]
		n++
	}
	return n
}
