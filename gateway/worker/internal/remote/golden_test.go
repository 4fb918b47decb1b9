package remote

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/internal/test/golden"
)

// TestTranscripts plays the scenarios in testdata. Each line that begins with ">" is an action, as the traces of the
// explorer name it, and what follows it is what the machines then did. The first one sets the scene: "> world 2 w r"
// is two workers, the first of which owns the partition, and two callers, of the letters that scope.callers explains.
func TestTranscripts(t *testing.T) { golden.Play(t, play) }

func play(t *testing.T, text string) []byte {
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
				t.Fatal(err)
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
				t.Fatalf("%q: %v:\n%s", command, w.bad, out.Bytes())
			}
		}
	}
	return out.Bytes()
}
