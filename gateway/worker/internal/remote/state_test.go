package remote

import "testing"

// TestTransitions tries every pair of states.
func TestTransitions(t *testing.T) {
	for from := range states {
		for to := range states {
			m, l := &Machine{}, &Lock{Key: "k", state: from}
			m.count[from] = 1
			panicked := func() (p bool) {
				defer func() { p = recover() != nil }()
				m.set(l, to)
				return false
			}()
			switch allowed := transitions[from][to]; {
			case panicked == allowed:
				t.Errorf("from %v to %v: allowed %v, refused %v", from, to, allowed, panicked)
			case allowed && (l.state != to || m.count[from] != 0 || m.count[to] != 1):
				t.Errorf("from %v to %v: it is %v, counted %v", from, to, l.state, m.count)
			case !allowed && l.state != from:
				t.Errorf("from %v to %v: it is %v though that was refused", from, to, l.state)
			}
		}
		if from != none && !transitions[from][none] {
			t.Errorf("%v has no end", from)
		}
		if from.String() == "" {
			t.Errorf("%d has no name", from)
		}
	}
	for e := range Events {
		if e.String() == "" {
			t.Errorf("event %d has no name", e)
		}
	}
}
