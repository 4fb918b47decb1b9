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
		// The flags are parsed, and the pattern of -run has to match a test. Packages are compiled as scripts/test does
		// it, which says so in TESTS_RACE.
		{command: re(`^go test (?:-race )?(.* -run (\S+).*)$`), instead: `go test -vet=off $$TESTS_RACE $1 -list $2`, output: `(?m)^Test`},
		{command: re(`^go test (?:-race )?(.*)$`), instead: `go test -vet=off $$TESTS_RACE $1 -list .`, output: `(?m)^Test`},
		{command: re(`^\(cd (\S+) && (\S+=\S+ )?go test (.*)\)$`), instead: `cd $1 && ${2}go test -vet=off $$TESTS_RACE $3 -list .`, output: `(?m)^Test`},
		{command: re(`^(go -C \S+ run \. .*)$`), instead: `$1 --help`, output: `(?i)usage`},
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
