package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
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
	t.Chdir("..")
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

func castOf(seed uint64, length time.Duration) *cast {
	return &cast{cfg: config{Time: length, Seed: int64(seed), TTL: 10 * time.Second}}
}

func TestPlanFollowsItsSeed(t *testing.T) {
	plan := func(seed uint64) string { return fmt.Sprint(castOf(seed, 10*time.Minute).plan().Episodes()) }
	if once, again := plan(1), plan(1); once != again {
		t.Error("one seed has two plans")
	}
	if plan(1) == plan(2) {
		t.Error("two seeds have one plan")
	}
}

func TestPlanKeepsItsConditions(t *testing.T) {
	for seed := range uint64(200) {
		c := castOf(seed, time.Hour)
		seen := make(map[string]int)
		for _, e := range c.plan().Episodes() {
			for _, f := range e {
				seen[f.Kind.Name]++
				low, high := time.Duration(f.Kind.Lasts[0])*c.cfg.TTL/10, time.Duration(f.Kind.Lasts[1])*c.cfg.TTL/10
				if f.Lasts < low || f.Lasts > high || (f.Kind.Target != "") != (f.Host != "") {
					t.Errorf("seed %d: %v", seed, f)
				}
			}
			if len(e) > 2 || len(e) == 2 && (e[0].Kind.Alone || !e[1].Kind.Beside || e[0].Host != "" && e[0].Host == e[1].Host) {
				t.Errorf("seed %d: %v come together", seed, e)
			}
		}
		if len(seen) != len(c.kinds()) {
			t.Errorf("seed %d: an hour has %d of %d kinds", seed, len(seen), len(c.kinds()))
		}
	}
}

func TestFlags(t *testing.T) {
	for _, bad := range []string{"x", "-t 1s", "-only kill", "-store x", "-store etcd -only lose-writes", "-clients 0", "-seed x"} {
		if _, err := parse(strings.Fields(bad), io.Discard); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	cfg, err := parse([]string{"-only", "loss,kill-worker", "-t", "1m"}, io.Discard)
	if err != nil || len((&cast{cfg: cfg}).deck()) != 2 || cfg.TTL != 5*time.Second {
		t.Errorf("%+v, %v", cfg, err)
	}
}

func TestOverEtcdFaultsOfItsLeaderCostNothing(t *testing.T) {
	redis, etcd := new(cast).deck(), (&cast{cfg: config{Store: overEtcd}}).deck()
	fails := func(deck []*trial.Kind, name string) []int {
		return deck[slices.IndexFunc(deck, func(k *trial.Kind) bool { return k.Name == name })].Fails
	}
	for _, name := range []string{"kill-store-leader", "cut-store-leader"} {
		if len(fails(etcd, name)) > 0 || len(fails(redis, name)) == 0 {
			t.Errorf("%s over etcd and redis: %v, %v", name, fails(etcd, name), fails(redis, name))
		}
	}
	if slices.ContainsFunc(etcd, func(k *trial.Kind) bool { return k.Name == "lose-writes" }) {
		t.Error("etcd is to lose writes")
	}
}

func TestWays(t *testing.T) {
	if got := ways([]string{"a"}, []string{"b"}, trial.Inward); !slices.Equal(got, []fabric.Way{{From: "b", To: "a"}}) {
		t.Errorf("inward: %v", got)
	}
}

func TestDocsHaveEveryKind(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range new(cast).kinds() {
		if !strings.Contains(string(text), "`"+k.Name+"`") {
			t.Errorf("docs/reliability.md does not say what %s allows", k.Name)
		}
	}
}
