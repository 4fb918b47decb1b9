package handoff

import (
	"fmt"
	"github.com/keyway-go/keyway/internal/records"
	"strings"
	"testing"
)

// TestTransitions tries every pair of states: those in the tables pass, and
// all others are refused by the functions that write the states.
func TestTransitions(t *testing.T) {
	for from := range states {
		for to := range states {
			m := testMachine(t, Config{Partitions: 1})
			m.parts[0].state = from
			if got := writes(func() { m.setState(0, to) }); got != stateNext[from][to] {
				t.Errorf("partition %v to %v: allowed %v", from, to, got)
			}
		}
	}
	for from := range phases {
		for to := range phases {
			m := testMachine(t, Config{Partitions: 1})
			m.phase = from
			if got := writes(func() { m.setPhase(to) }); got != phaseNext[from][to] {
				t.Errorf("session %v to %v: allowed %v", from, to, got)
			}
		}
	}
}

// TestTransitionsAreDocumented sees that the tables allow nothing that never comes
// about, and that the package doc shows the same.
func TestTransitionsAreDocumented(t *testing.T) {
	doc := packageDoc(t)
	for from := range states {
		for to := range states {
			if line := fmt.Sprintf("%v → %v", from, to); stateNext[from][to] != strings.Contains(doc, line+" ") {
				t.Errorf("package doc and table disagree about %q", line)
			}
		}
	}
	for from := range phases {
		for to := range phases {
			if line := fmt.Sprintf("%v → %v", from, to); phaseNext[from][to] != strings.Contains(doc, line+" ") {
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
	for _, s := range []fmt.Stringer{
		phaseStarting, phaseLive, phaseReasserting, phaseLost, phaseReleasing, phaseReleased,
		stateRemote, stateClaiming, stateServing, stateClosing, stateParked, stateMoving,
		records.OpClaim, records.OpMove, records.OpAdvance,
	} {
		name := s.String()
		if name == "" || seen[name] {
			t.Errorf("%T %d is called %q", s, s, name)
		}
		seen[name] = true
	}
}
