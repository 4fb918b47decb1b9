package remote

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the transcripts in testdata")

// TestTranscripts plays the scenarios in testdata. Each line that begins with ">" is an action, as the traces of the
// explorer name it, and what follows it is what the machines then did. The first one sets the scene: "> world 2 w r"
// is two workers, the first of which owns the partition, and two callers, of the letters that scope.callers explains.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/[0-9]*.txt")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d transcripts, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := play(string(want))
			if err == nil && *update {
				err = os.WriteFile(file, got, 0o644)
			} else if err == nil && !bytes.Equal(got, want) {
				t.Errorf("the machines do something else now (-update accepts it):\n%s", got)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func play(text string) ([]byte, error) {
	var out bytes.Buffer
	var w *world
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		command, ok := strings.CutPrefix(line, "> ")
		switch f := strings.Fields(command); {
		case strings.HasPrefix(line, "#"):
			fmt.Fprintln(&out, line)
		case !ok:
		case f[0] == "world":
			fmt.Fprintf(&out, "\n%s\n", line)
			workers, err := strconv.Atoi(f[1])
			if err != nil {
				return nil, err
			}
			sc := newScope("", workers, f[2:], nil)
			for e := range sc.limits {
				sc.limits[e] = 100
			}
			w = newWorld(sc)
			w.log = func(format string, args ...any) { fmt.Fprintf(&out, "  "+format+"\n", args...) }
		default:
			fmt.Fprintf(&out, "\n%s\n", line)
			if w.do(w.find(command)); w.bad != nil {
				return nil, fmt.Errorf("%q: %w:\n%s", command, w.bad, out.Bytes())
			}
		}
	}
	return out.Bytes(), nil
}
