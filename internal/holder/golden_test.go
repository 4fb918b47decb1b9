package holder

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/lease"
	"github.com/keyway-go/keyway/internal/test/golden"
)

// TestTranscripts plays the scenarios in testdata. Each line that begins with ">" is a command at a time; what follows it
// is what the lock decides. The commands are the cases of script.command.
func TestTranscripts(t *testing.T) { golden.Play(t, play) }

// script plays a scenario.
type script struct {
	l      Lock
	policy Policy
	asked  lease.Instant // before the latest call was sent
}

func play(t *testing.T, text string) []byte {
	t.Helper()
	s := script{policy: Policy{TTL: 10 * time.Second, TurnsFor: Never}}
	var out bytes.Buffer
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, ">"):
			f := strings.Fields(line[1:])
			at, err := time.ParseDuration(f[0])
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			now := lease.Instant{Mono: at, Wall: at}
			d, err := s.command(now, f[1], f[2:])
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			fmt.Fprintln(&out, line)
			if s.l.term == 0 { // it is not granted yet
				continue
			}
			if fmt.Fprintf(&out, "  %s; %v, %v", decisionNames[d], s.l.state, s.l.course); s.l.state < lost {
				fmt.Fprintf(&out, ", token %d, %v left, again in %v", s.l.Token(), s.l.Left(now), s.l.Pause())
			}
			out.WriteByte('\n')
		case line == "" || strings.HasPrefix(line, "#"):
			fmt.Fprintln(&out, line)
		}
	}
	return out.Bytes()
}

var decisionNames = [...]string{
	"wait", "begin", "renew", "seek", "cancel: overdue", "cancel: gone", "pass", "release", "release at the owner",
	"retake", "tell: released", "tell: not owner", "tell: unknown", "tell: unanswered",
}

var answerNames = map[string]Answer{"gone": Gone, "held": Held, "elsewhere": Elsewhere, "released": Released, "taken": Taken}

// command carries out one line of a scenario.
func (s *script) command(now lease.Instant, name string, args []string) (d Decision, err error) {
	arg := func(i int) string {
		if i < len(args) {
			return args[i]
		}
		return ""
	}
	term, _ := time.ParseDuration(arg(0))
	is := func(flag string) bool { return arg(0) == flag || arg(1) == flag }
	own := Promise{Cancel: 8 * time.Second, Surrender: 9500 * time.Millisecond}
	switch name {
	case "store": // store [500ms] [continue|never|turns]: the margin, and what is unusual
		s.policy = Policy{TTL: 10 * time.Second, Keeper: Store, Margin: term, Every: 3 * time.Second, TurnsFor: Never}
		switch arg(1) {
		case "continue":
			s.policy.Persist = true
		case "never":
			s.policy.Every = Never
		case "turns":
			s.policy.TurnsFor = time.Second
		}
	case "ask": // the call for the lock
		s.asked = now
	case "granted": // granted 10s 2: the term, and how many further turns
		turns, _ := strconv.Atoi(arg(1))
		s.l = New(&s.policy, s.asked, Grant{Promise: own, Token: 7, Lease: term, Next: 8, Turns: turns})
	case "confirm":
		d = s.l.Confirm(now)
	case "give":
		s.l.Give()
	case "begin":
		d = s.l.Begin(now)
	case "tick":
		d = s.l.Tick(now)
	case "renewed": // renewed held|gone|elsewhere|taken
		d = s.l.Renewed(now, s.asked, answerNames[arg(0)], own)
	case "retaken": // retaken 10s
		s.l.Retaken(s.asked, Grant{Token: 17, Lease: term, Next: 18, Turns: 1})
	case "failed": // failed [elsewhere]
		s.l.Failed(is("elsewhere"))
	case "extend":
		s.l.Extend(term)
		s.asked = now
	case "extended": // extended 2s [repeated]
		d = s.l.Extended(now, s.asked, Grant{Promise: own, Lease: term}, is("repeated"))
	case "unextended":
		s.l.Unextended()
	case "close":
		d = s.l.Close()
	case "leave":
		d = s.l.Leave(now)
	case "end": // end [waits]
		d = s.l.End(now, is("waits"))
	case "released": // released held|gone|elsewhere|released|taken [repeated]
		d = s.l.Answered(now, answerNames[arg(0)], is("repeated"))
	case "unanswered": // unanswered [repeated] [elsewhere]
		d = s.l.Unanswered(is("repeated"), is("elsewhere"))
	case "giveup": // giveup [stopped]
		d = s.l.GiveUp(now, is("stopped"))
	default:
		err = fmt.Errorf("no command %q", name)
	}
	if d == Renew || d == Seek || d == Retake {
		s.asked = now
	}
	return d, err
}
