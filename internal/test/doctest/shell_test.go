package doctest

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// trial is how a command of a document is tried, where running it as it
// stands would take minutes or the machine's own ports.
type trial struct {
	command *regexp.Regexp
	instead string // the command to run; $1 is what command found
	output  string // pattern of what it prints
	fails   bool
}

// The trials leave out what takes long, and nothing of the command's own flags
// and names. The programs of README.md are tried in programs_test.go.
func trials() []trial {
	re := regexp.MustCompile
	return []trial{
		{command: re(`^(make .*)$`), instead: `$1 -n`},
		{command: re(`^export KEYWAY_GOSSIP_KEY=\.\.\.$`), instead: `true`},
		{command: re(`^(bin/(?:router|worker) .*)$`), instead: `true`},
		// scripts/test compiles and runs the tests. Here it is looked whether those that are named exist, and their flags.
		{command: re(`^go test (?:-race )?(\S+) -run (\w+)((?: -\w+)*)$`), instead: `for flag in $3; do [ $$flag = -v ] || grep -q "\"$${flag#-}\"" $1/*_test.go internal/test/golden/*.go || exit 1; done; grep '^func $2' $1/*_test.go`, output: `func Test`},
		{command: re(`^go test (?:-race )?((?:\./\S+ ?)+)$`), instead: `for package in $1; do grep '^func Test' $$package/*_test.go || exit 1; done`, output: `func Test`},
		{command: re(`^\(cd (\S+) && (?:\w+=\w+ )?go test (?:-v )?(?:-timeout \d+m )?\./\.\.\.\)$`), instead: `grep '^func Test' $1/*_test.go`, output: `func Test`},
		// Compiled as scripts/test compiles the module's tests, which says so in TESTS_RACE.
		{command: re(`^go -C (\S+) run (\. .*)$`), instead: `go -C $1 run $$TESTS_RACE $2 --help`, output: `(?i)usage`},
	}
}

// Every command of the documents is run, in the form that a trial gives it.
func TestCommands(t *testing.T) {
	comment := regexp.MustCompile(`(?:^|\s+)# .*$`)
	for _, b := range blocks(t, "sh") {
		for line := range strings.Lines(b.text) {
			command := strings.TrimSpace(comment.ReplaceAllString(strings.TrimSuffix(line, "\n"), ""))
			if command == "" {
				continue
			}
			t.Run(b.file+"/"+command, func(t *testing.T) {
				for _, trial := range trials() {
					if m := trial.command.FindStringSubmatchIndex(command); m != nil {
						trial.run(t, string(trial.command.ExpandString(nil, trial.instead, command, m)))
						return
					}
				}
				t.Error("no trial matches: add one to trials, or mark the block as text")
			})
		}
	}
}

func (trial trial) run(t *testing.T, command string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-c", command)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if (err != nil) != trial.fails || !regexp.MustCompile(trial.output).Match(out) {
		t.Errorf("%s: %v, want output that matches %q:\n%s", command, err, trial.output, out)
	}
}
