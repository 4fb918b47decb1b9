//go:build linux

package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/loadtest/internal/report"
)

// TestPlan: which scenes there are, and who takes part in them.
func TestPlan(t *testing.T) {
	tests := []struct {
		args string
		want string
	}{
		{"--short", "uniform: plain,lock,redsync,hash,keyway,none-router,none; zipf: plain,lock,redsync,hash,keyway,none-router,none; hot: plain,lock,redsync,hash,keyway,keyway-batch,none-router,none; " +
			"hot-stock-postgres: plain,pg-row,hash,keyway,keyway-batch; members: plain,hash,keyway"},
		{"--workloads hot,members --contenders keyway,lock+local", "hot: keyway,lock+local; members: keyway,lock+local"},
		{"--workloads hot,hot-wait --contenders keyway", "hot: keyway; hot-wait: keyway"},
		{"--workloads zipf-wait,hot-stock-postgres --contenders keyway", "zipf-wait: keyway; hot-stock-postgres: keyway"},
		{"--workloads uniform-stock-postgres", "uniform-stock-postgres: plain,pg-row,hash,keyway,keyway-batch"},
	}
	for _, tt := range tests {
		o, err := parseOptions(strings.Fields(tt.args), t.Output())
		if err != nil {
			t.Errorf("%s: %v", tt.args, err)
			continue
		}
		var got []string
		for _, s := range o.scenes {
			got = append(got, s.name+": "+strings.Join(s.ids, ","))
			if s.name == workloadMembers && (fmt.Sprint(s.events) != "[add drain w1 kill w2]" || !s.alone() || !s.changes() || s.ttl != membersTTL) {
				t.Errorf("%s: %+v", tt.args, s)
			}
		}
		if text := strings.Join(got, "; "); text != tt.want {
			t.Errorf("%s: %s\nwant %s", tt.args, text, tt.want)
		}
	}
	o, err := parseOptions([]string{"--workloads", "members", "--events", "1s restart-redis", "--time", "2s"}, t.Output())
	if err != nil || o.scenes[0].time != o.time || o.scenes[0].changes() || o.scenes[0].ttl != o.ttl {
		t.Errorf("with events of one's own: %v, %+v", err, o.scenes)
	}
}

// TestStoresOfScenes: a contender starts PostgreSQL for the scenes that work in
// it, and no other.
func TestStoresOfScenes(t *testing.T) {
	o := parse(t, "--short")
	for _, c := range o.chosen {
		want := map[string]string{"plain": "[postgres]", "pg-row": "[postgres]", "hash": "[postgres]", "keyway": "[postgres]", "keyway-batch": "[postgres]"}[c.id]
		if want == "" {
			want = "[]"
		}
		if got := fmt.Sprint(stores(c, o.together(c))); got != want {
			t.Errorf("%s starts %s, want %s", c.id, got, want)
		}
		for _, s := range o.scenes {
			if s.name == workloadMembers && c.store == "" && len(stores(c, []scene{s})) > 0 {
				t.Errorf("%s starts a store where members change", c.id)
			}
		}
	}
}

// TestMembers: a load balancer that hashes is shown to be wrong while members
// change, and Keyway to be right, which is no failure of the run.
func TestMembers(t *testing.T) {
	t.Parallel()
	r, printed, err := loadtest(t.Context(), t, t.Output(), "--contenders", "hash,keyway", "--workloads", "members", "--clients", "256")
	if err != nil {
		t.Fatal(err)
	}
	if c := r.Check("hash"); c.Faults() == 0 || !c.Unsafe || r.Scenes[0].Row("hash").Judged.Faults() != c.Faults() || !strings.Contains(printed, "WRONG, as was to be expected") {
		t.Errorf("hash: %+v", c)
	}
	if c := r.Check("keyway"); c.Faults() != 0 || r.Scenes[0].Row("keyway").Judged.Answered == 0 {
		t.Errorf("keyway: %+v", c)
	}
}

// TestBatch: with a transaction for each batch in place of one for each request,
// every decrement is still counted once and has an answer of its own.
func TestBatch(t *testing.T) {
	t.Parallel()
	r, printed, err := loadtest(t.Context(), t, t.Output(), "--contenders", "keyway,keyway-batch", "--workloads", "hot-stock-postgres,zipf,hot-wait",
		"--rounds", "1", "--time", "1s", "--keys", "20", "--clients", "16")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range r.Scenes {
		row := s.Row("keyway-batch")
		if row.Judged.Faults() != 0 || row.Judged.Answered == 0 || row.Failed() != 0 {
			t.Errorf("%s: %+v", s.Name, row)
		}
	}
	// Statements to PostgreSQL: four for each transaction, which is for one
	// request or for as many as waited.
	s := sceneOf(r, "hot-stock-postgres")
	if one, many := s.Row("keyway").Median(report.Commands), s.Row("keyway-batch").Median(report.Commands); one < 3 || many > 0.5*one {
		t.Errorf("%.2f commands for each request one by one, %.2f in batches", one, many)
	}
	if want := "Batch answered "; !strings.Contains(printed, want) {
		t.Errorf("the summary does not say what %s", want)
	}
}
