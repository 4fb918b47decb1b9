package main

import (
	"cmp"
	"io"
	"net/http"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/cmd/chaos/fabric"
	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// TestMain makes the process within the namespaces of this program.
func TestMain(m *testing.M) {
	if os.Getenv(insideEnv) != "" {
		os.Exit(Main())
	}
	os.Exit(m.Run())
}

// TestCampaign is the short form. CAMPAIGN_TIME makes it longer, CAMPAIGN_SEED
// repeats one.
func TestCampaign(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a campaign needs root")
	}
	for _, program := range []string{"redis-server", "redis-sentinel", "cc"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	args := []string{"-t", cmp.Or(os.Getenv("CAMPAIGN_TIME"), "30s"), "-clients", "4"}
	if seed := os.Getenv("CAMPAIGN_SEED"); seed != "" {
		args = append(args, "-seed", seed)
	} else {
		args = append(args, "-only", "kill-worker,cut-worker-store,restart-worker")
	}
	if err := outside(t.Context(), args, t.Output()); err != nil {
		t.Fatal(err)
	}
}

func short(seed uint64) config {
	return config{Time: 10 * time.Minute, Seed: int64(seed), TTL: 10 * time.Second, Workers: 4, Routers: 2}
}

func TestPlanFollowsItsSeed(t *testing.T) {
	if !reflect.DeepEqual(plan(short(1)), plan(short(1))) {
		t.Error("one seed has two plans")
	}
	if reflect.DeepEqual(plan(short(1)), plan(short(2))) {
		t.Error("two seeds have one plan")
	}
}

func TestPlanKeepsItsConditions(t *testing.T) {
	for seed := range uint64(200) {
		hour := short(seed)
		hour.Time = time.Hour
		seen := make(map[string]int)
		var took time.Duration
		for _, e := range plan(hour) {
			took += e.takes(hour.TTL)
			for _, f := range e {
				seen[f.kind.name]++
				low, high := time.Duration(f.kind.lasts[0])*hour.TTL/10, time.Duration(f.kind.lasts[1])*hour.TTL/10
				if f.lasts < low || f.lasts > high || (f.kind.target != "") != (f.host != "") {
					t.Errorf("seed %d: %v", seed, f)
				}
			}
			if len(e) > 2 || len(e) == 2 && (e[0].planned() || !e[1].kind.beside || e[0].host != "" && e[0].host == e[1].host) {
				t.Errorf("seed %d: %v come together", seed, e)
			}
		}
		if len(seen) != len(kinds) || took > hour.Time {
			t.Errorf("seed %d: an hour has %d of %d kinds and takes %v", seed, len(seen), len(kinds), took)
		}
	}
}

func TestFlags(t *testing.T) {
	for _, bad := range []string{"x", "-t 1s", "-only kill", "-store x", "-store etcd -only lose-writes", "-workers 1", "-routers 1", "-clients 0", "-seed x"} {
		if _, err := parse(strings.Fields(bad), io.Discard); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	cfg, err := parse([]string{"-only", "loss,kill-worker", "-t", "1m"}, io.Discard)
	if err != nil || len(cfg.deck()) != 2 || cfg.TTL != 5*time.Second {
		t.Errorf("%+v, %v", cfg, err)
	}
}

func TestOverEtcdFaultsOfItsLeaderCostNothing(t *testing.T) {
	deck := config{Store: overEtcd}.deck()
	for _, name := range []string{"kill-store-leader", "cut-store-leader"} {
		i := slices.IndexFunc(deck, func(k *kind) bool { return k.name == name })
		if i < 0 || len(deck[i].fails) > 0 || len(kindOf(name).fails) == 0 {
			t.Errorf("%s over etcd: %d", name, i)
		}
	}
	if slices.ContainsFunc(deck, func(k *kind) bool { return k.name == "lose-writes" }) {
		t.Error("etcd is to lose writes")
	}
}

func TestAFaultAllowsNoMoreThanItsKind(t *testing.T) {
	const ttl = 10 * time.Second
	at := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	killed := &fault{kind: kindOf("kill-worker"), process: "w1#1", begin: at(10), broke: at(10), end: at(15)}
	cut := &fault{kind: kindOf("cut-client-router"), begin: at(10), end: at(14)}
	planned := &fault{kind: kindOf("restart-worker"), begin: at(10), end: at(14)}
	for _, test := range []struct {
		what       string
		fault      *fault
		send, recv float64
		status     int
		ran        string
		want       bool
	}{
		{"it ran at the killed worker", killed, 9, 10.1, 502, "w1#1", true},
		{"it was on its way there", killed, 9, 10.1, 502, "none", true},
		{"it ran elsewhere", killed, 9, 10.1, 502, "w2#1", false},
		{"it never ran and failed late", killed, 9, 12, 502, "none", false},
		{"it was held in vain", killed, 9, 10.1, 503, "none", false},
		{"it was over before", killed, 8, 9.9, 502, "w1#1", false},
		{"its connection was cut", cut, 11, 12, noAnswer, "none", true},
		{"its connection was silent for longer", cut, 11, 30, noAnswer, "none", true},
		{"it was sent when all was well again", cut, 26, 27, noAnswer, "none", false},
		{"a router answered for a cut that is none of its own", cut, 11, 12, 502, "none", false},
		{"in a planned move", planned, 11, 12, 503, "none", false},
	} {
		q := &trial.Request{Send: at(test.send), Recv: at(test.recv), Status: test.status}
		if got := test.fault.allows(q, test.ran, ttl); got != test.want {
			t.Errorf("%s: allowed is %v", test.what, got)
		}
	}
}

func TestOnlyWhatLiesOutsideIsExcused(t *testing.T) {
	paused := &fault{kind: kindOf("pause-worker"), process: "w1#1", begin: 100, end: 200}
	beyond := &fault{kind: kindOf("clock-rate-beyond"), process: "w2#1", begin: 10 * time.Second, end: 20 * time.Second}
	r := &report{faults: []*fault{paused, beyond}, requests: []*trial.Request{{Number: 1, Send: 99}, {Number: 2, Send: 101}}}
	late := func(request int64, worker string, outcome trial.Outcome) *trial.Execution {
		return &trial.Execution{Request: request, Worker: worker, Outcome: outcome}
	}
	for _, test := range []struct {
		what    string
		finding trial.Finding
		want    *fault
	}{
		{"what it had admitted before", trial.Finding{Kind: trial.Regression, At: 201, Late: late(1, "w1#1", trial.Fenced)}, paused},
		{"what came while it stood", trial.Finding{Kind: trial.Regression, At: 201, Late: late(2, "w1#1", trial.Fenced)}, nil},
		{"what another one sent", trial.Finding{Kind: trial.Regression, At: 201, Late: late(1, "w3#1", trial.Fenced)}, nil},
		{"what was not refused", trial.Finding{Kind: trial.Overlap, At: 201, Late: late(1, "w1#1", trial.Written)}, nil},
		{"beyond the margin", trial.Finding{Kind: trial.Overlap, At: 15 * time.Second, Late: late(1, "w3#1", trial.Written)}, beyond},
		{"a token of another one", trial.Finding{Kind: trial.Regression, At: 15 * time.Second, Late: late(1, "w3#1", trial.Fenced)}, nil},
		{"a lost update of nobody", trial.Finding{Kind: trial.LostUpdate, At: 15 * time.Second}, nil},
	} {
		if got := r.excuse(test.finding); got != test.want {
			t.Errorf("%s: excused by %v", test.what, got)
		}
	}
}

func TestRulesAddUpAndHeal(t *testing.T) {
	c := &cast{network: fabric.NewSwitch(1), rules: make(map[pair][]*fabric.Rule)}
	defer c.network.Close()
	for i, name := range []string{"a", "b"} {
		if err := c.network.Attach(name, fabric.MAC{2, byte(i)}, nothing{make(chan struct{})}); err != nil {
			t.Fatal(err)
		}
	}
	ab := pairs([]string{"a"}, []string{"b"}, outward)
	slow := c.apply(ab, fabric.Rule{Delay: 1, Rate: 10})
	cut := c.apply(pairs([]string{"a"}, []string{"b"}, bothWays), fabric.Rule{Cut: true, Delay: 2})
	if r := c.sumLocked(ab[0]); !r.Cut || r.Delay != 3 || r.Rate != 10 {
		t.Errorf("%+v", r)
	}
	cut()
	if r := c.sumLocked(ab[0]); r != (fabric.Rule{Delay: 1, Rate: 10}) {
		t.Errorf("%+v", r)
	}
	slow()
	if r := c.sumLocked(ab[0]); r != (fabric.Rule{}) {
		t.Errorf("%+v", r)
	}
	if got := pairs([]string{"a"}, []string{"b"}, inward); !slices.Equal(got, []pair{{"b", "a"}}) {
		t.Errorf("inward: %v", got)
	}
}

// nothing is a device that is silent.
type nothing struct{ closed chan struct{} }

func (n nothing) Read([]byte) (int, error)    { <-n.closed; return 0, io.EOF }
func (n nothing) Write(b []byte) (int, error) { return len(b), nil }
func (n nothing) Close() error                { close(n.closed); return nil }

func TestStatusesAreListed(t *testing.T) {
	if got := statuses(map[int]int{http.StatusBadGateway: 2, noAnswer: 1, 418: 3}); got != "1 × no answer, 2 × 502, 3 × 418" {
		t.Error(got)
	}
	if got := statuses(nil); got != "none" {
		t.Error(got)
	}
}

func TestDocsHaveEveryKind(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds {
		if !strings.Contains(string(text), "`"+k.name+"`") {
			t.Errorf("docs/reliability.md does not say what %s allows", k.name)
		}
	}
}
