package trial

import (
	"testing"
	"time"
)

func TestAFaultAllowsNoMoreThanItsKind(t *testing.T) {
	const ttl = 10 * time.Second
	at := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	kill := &Kind{Name: "kill", Fails: Broken, Ran: true}
	door := &Kind{Name: "kill", Fails: Broken, Ran: true, Door: true}
	killed := &Fault{Kind: kill, Process: "w1#1", Begin: at(10), Broke: at(10), End: at(15)}
	closed := &Fault{Kind: door, Process: "w1#1", Begin: at(10), Broke: at(10), End: at(15)}
	paused := &Fault{Kind: &Kind{Name: "pause", Fails: Resumed, Ran: true, Settle: 0.5}, Process: "w1#1", Begin: at(10), End: at(15)}
	cut := &Fault{Kind: &Kind{Name: "cut", Fails: []int{NoAnswer}, Settle: 1, Cuts: true}, Begin: at(10), End: at(14)}
	planned := &Fault{Kind: &Kind{Name: "restart"}, Begin: at(10), End: at(14)}
	for _, test := range []struct {
		what       string
		fault      *Fault
		send, recv float64
		status     int
		ran        string
		want       bool
	}{
		{"it ran at the killed worker", killed, 9, 10.1, 502, "w1#1", true},
		{"it was on its way there", killed, 9, 10.1, 502, "", true},
		{"it was sent before the router had noticed", killed, 10.1, 10.5, 502, "", true},
		{"it ran elsewhere", killed, 9, 10.1, 502, "w2#1", false},
		{"it never ran and failed late", killed, 9, 12, 502, "", false},
		{"it was held in vain", killed, 9, 10.1, 503, "", false},
		{"it had no answer", killed, 9, 10.1, NoAnswer, "w1#1", false},
		{"it was over before", killed, 8, 9.9, 502, "w1#1", false},
		{"it was passed on by the killed door", closed, 9, 10.1, 502, "w2#1", true},
		{"it was passed on, and failed late", closed, 9, 10.6, 502, "w2#1", false},
		{"it was sent when the door was dead", closed, 10.1, 10.2, 502, "w2#1", false},
		{"it ran at the paused worker", paused, 9, 15.1, 502, "w1#1", true},
		{"it was refused for its token", paused, 9, 15.1, 409, "w1#1", true},
		{"it waited at the paused worker", paused, 11, 15.1, 502, "", false},
		{"its connection was cut", cut, 11, 12, NoAnswer, "", true},
		{"its connection was silent for longer", cut, 11, 30, NoAnswer, "", true},
		{"it was sent when all was well again", cut, 26, 27, NoAnswer, "", false},
		{"a router answered for a cut that is none of its own", cut, 11, 12, 502, "", false},
		{"in a planned move", planned, 11, 12, 503, "", false},
	} {
		q := &Request{Send: at(test.send), Recv: at(test.recv), Status: test.status}
		if got := test.fault.allows(q, test.ran, ttl); got != test.want {
			t.Errorf("%s: allowed is %v", test.what, got)
		}
	}
}

func TestOnlyWhatLiesOutsideIsExcused(t *testing.T) {
	paused := &Fault{Kind: &Kind{Late: true}, Process: "w1#1", Begin: 100, End: 200}
	beyond := &Fault{Kind: &Kind{Fails: Broken, Beyond: true}, Process: "w2#1", Begin: 10 * time.Second, End: 20 * time.Second}
	sent := map[int64]time.Duration{1: 99, 2: 101}
	late := func(request int64, worker string, outcome Outcome) *Execution {
		return &Execution{Request: request, Worker: worker, Outcome: outcome}
	}
	for _, test := range []struct {
		what    string
		finding Finding
		want    *Fault
	}{
		{"what it had admitted before", Finding{Kind: Regression, At: 201, Late: late(1, "w1#1", Fenced)}, paused},
		{"what overlaps for that", Finding{Kind: Overlap, At: 201, Late: late(1, "w1#1", Fenced)}, paused},
		{"what came while it stood", Finding{Kind: Regression, At: 201, Late: late(2, "w1#1", Fenced)}, nil},
		{"what came while it stands", Finding{Kind: Regression, At: 150, Late: late(1, "w1#1", Fenced)}, nil},
		{"what comes too late", Finding{Kind: Regression, At: 201 + lateGrace, Late: late(1, "w1#1", Fenced)}, nil},
		{"what nobody knows", Finding{Kind: Regression, At: 201, Late: late(3, "w1#1", Fenced)}, nil},
		{"what another one sent", Finding{Kind: Regression, At: 201, Late: late(1, "w3#1", Fenced)}, nil},
		{"what was not refused", Finding{Kind: Overlap, At: 201, Late: late(1, "w1#1", Written)}, nil},
		{"a lost update", Finding{Kind: LostUpdate, At: 201, Late: late(1, "w1#1", Fenced)}, nil},
		{"wrong headers", Finding{Kind: MixedUp, At: 201}, nil},
		{"beyond the margin", Finding{Kind: Overlap, At: 15 * time.Second, Late: late(1, "w3#1", Written)}, beyond},
		{"a token of another one", Finding{Kind: Regression, At: 15 * time.Second, Late: late(1, "w3#1", Fenced)}, nil},
		{"a lost update of nobody", Finding{Kind: LostUpdate, At: 15 * time.Second}, nil},
	} {
		for _, f := range []*Fault{paused, beyond} {
			if got := f.Excuses(test.finding, sent, 10*time.Second); got != (f == test.want) {
				t.Errorf("%s: excused is %v", test.what, got)
			}
		}
	}
}

// What cannot be hit at the same time does not come together.
func TestEpisodesHitEachHostOnce(t *testing.T) {
	p := Plan{Time: time.Hour, TTL: 10 * time.Second, Quiet: time.Second, Together: 3, Hosts: []string{"w1", "w2", "s"}, Kinds: []*Kind{
		{Name: "kill", Target: "w", Lasts: [2]int{0, 10}}, {Name: "move", Target: "w", Beside: true},
		{Name: "lose", Target: "s", Beside: true}, {Name: "restart", Target: "s", Beside: true},
	}}
	most := 0
	for seed := range int64(20) {
		p.Seed = seed
		var took time.Duration
		for _, e := range p.Episodes() {
			took += p.takes(e)
			hosts := make(map[string]bool)
			for i, f := range e {
				hosts[f.Host] = true
				if i > 0 && !f.Kind.Beside {
					t.Errorf("seed %d: %v", seed, e)
				}
			}
			if most = max(most, len(e)); len(hosts) != len(e) {
				t.Errorf("seed %d: %v", seed, e)
			}
		}
		if took > p.Time {
			t.Errorf("seed %d takes %v", seed, took)
		}
	}
	if most != 3 {
		t.Errorf("at most %d faults come together", most)
	}
}

// A short trial plays a fault that fits into it, and not the first that comes.
func TestAnEpisodeThatFits(t *testing.T) {
	p := Plan{Time: 10 * time.Second, TTL: time.Second, Together: 1, Hosts: []string{"w1"}, Kinds: []*Kind{
		{Name: "long", Target: "w", Lasts: [2]int{200, 200}}, {Name: "short", Target: "w", Lasts: [2]int{60, 60}},
	}}
	for p.Seed = range 20 {
		if got := p.Episodes(); len(got) != 1 || got[0][0].Kind.Name != "short" {
			t.Errorf("seed %d: %v", p.Seed, got)
		}
	}
	p.Time = time.Second
	if got := p.Episodes(); len(got) > 0 {
		t.Errorf("in a second: %v", got)
	}
}
