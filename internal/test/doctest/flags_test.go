package doctest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/cluster"
)

var (
	helpGroup   = regexp.MustCompile(`^([A-Z][a-z]+):$`)
	helpFlag    = regexp.MustCompile(`^  --([a-z-]+)`)
	helpDefault = regexp.MustCompile(`\(default ([^()]*)\)$`)
)

// flagsOf returns the flags of a command in the groups of its help, a line each: the
// name, and the default if there is one.
func flagsOf(help string) (lines []string) {
	text := ""
	note := func() {
		if m := helpDefault.FindStringSubmatch(text); m != nil {
			lines[len(lines)-1] += " = " + m[1]
		}
		text = ""
	}
	for line := range strings.Lines(help) {
		line = strings.TrimSuffix(line, "\n")
		if m := helpGroup.FindStringSubmatch(line); m != nil {
			note()
			lines = append(lines, m[1]+":")
		} else if m := helpFlag.FindStringSubmatch(line); m != nil {
			note()
			lines = append(lines, "  "+m[1])
		}
		text = strings.TrimSpace(text + " " + strings.TrimSpace(line))
	}
	note()
	return lines
}

// The flags of the programs, their groups and defaults are those of testdata/flags.txt, and
// each program accepts the environment of the other.
func TestFlags(t *testing.T) {
	programs, err := cluster.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, c := range []struct{ command, program string }{
		{"router", programs.Router}, {"worker", programs.Worker}, {"router check", programs.Router}, {"router ctl", programs.Router},
	} {
		_, command, _ := strings.Cut(c.command, " ")
		help, err := exec.CommandContext(t.Context(), c.program, append(strings.Fields(command), "--help")...).Output()
		if err != nil {
			t.Fatal(err)
		}
		lines := flagsOf(string(help))
		fmt.Fprintf(&got, "%s\n%s\n\n", c.command, strings.Join(lines, "\n"))
		for _, line := range lines {
			name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			if command != "" || strings.HasSuffix(line, ":") {
				continue
			}
			variable := "KEYWAY_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
			t.Setenv(variable, "x")
			if err := cli.NewFlags("other", "").Parse(nil, io.Discard); err != nil {
				t.Errorf("--%s: add it to programFlags of internal/cli: %v", name, err)
			}
			os.Unsetenv(variable)
		}
	}
	want, err := os.ReadFile("testdata/flags.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("the flags are not those of testdata/flags.txt, but:\n%s", &got)
	}
}
