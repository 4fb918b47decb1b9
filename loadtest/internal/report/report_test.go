package report

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/loadtest/internal/resource"
)

func right(n int64) Judgement {
	return Judgement{Answered: n, Resource: resource.Verdict{Executions: n}}
}

func lost(n, updates int64) Judgement {
	return Judgement{Answered: n, Resource: resource.Verdict{Executions: n, Lost: updates, Overlaps: 2 * updates}}
}

// sample is a report with all that there can be.
func sample() *Report {
	turn := func(perSecond, p99 float64) Turn {
		return Turn{Seconds: 1, Answered: perSecond, PerSecond: perSecond, P50: p99 / 10, P99: p99, P999: 2 * p99, Fairness: 0.5,
			CPU: 10 + 1e5/perSecond + 3, FrontCPU: 10, AppCPU: 1e5 / perSecond, StoreCPU: 3, Commands: 4, Generator: 0.2}
	}
	numbers := map[string]int{"plain": 0, "lock": 1, "hash": 2, "keyway": 3, "keyway-batch": 4, "none": 5}
	row := func(id string, perSecond, p99 float64) *Row {
		r := &Row{Contender: id, Title: "the contender " + id, Number: numbers[id], Turns: []Turn{turn(perSecond, p99), turn(perSecond*1.1, p99), turn(perSecond*0.9, p99)},
			Marks: []Mark{{At: 2, Done: 2.01, What: "kill w1"}, {At: 5, Done: 7, What: "pause w2 2s"}}}
		for i := range 31 {
			r.Quantiles = append(r.Quantiles, Quantile{1 - math.Pow(10, -float64(i)/10), p99 / 10 * (1 + float64(i))})
		}
		for i := range 40 {
			p := Point{At: float64(i+1) / 4, PerSecond: perSecond * (1 + float64(i%5)/10), P99: p99 * (1 + float64(i%3)/4)}
			if i > 20 && i < 24 {
				p = Point{At: p.At, Failed: 7}
			}
			r.Series = append(r.Series, p)
		}
		return r
	}
	slow := row("plain", 8000, 120)
	slow.Turns[0][Failed] = 21
	slow.Failures = map[string]int64{"status 502 <b>": 21}
	hash := row("hash", 5000, 40)
	hash.Judged = lost(5000, 12)
	return &Report{
		Format: Format, Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Took: 60, Command: "loadtest --short",
		Machine:  Machine{CPU: "a CPU", Cores: 2, MemoryGB: 4, System: "Linux", Load: 0.1},
		Versions: map[string]string{"go": "go1.26", "nginx": "nginx/1.22"},
		Settings: Settings{Clients: 64, Rounds: 3, Seconds: 10, Instances: 3, Keys: 10_000, TTL: "10s", Poll: "2ms", Events: "2s kill w1, 5s pause w2 2s"},
		Scenes: []*Scene{
			{Name: "zipf", Title: "zipf 1.1, no work", Where: "on zipf 1.1 keys", Rows: []*Row{slow, row("lock", 15_000, 24), row("keyway", 27_000, 9), row("none", 34_000, 7)}},
			{Name: "hot", Title: "one hot key, no work", Where: "on one hot key", Rows: []*Row{row("plain", 2000, 150), row("hash", 30_000, 8), row("keyway", 40_000, 5), row("keyway-batch", 44_000, 4)}},
			{Name: "hot-stock-postgres", Title: "one hot key, a transaction in PostgreSQL", Where: "with a PostgreSQL transaction each", Rows: []*Row{row("plain", 400, 150), row("keyway", 800, 70), row("keyway-batch", 20_000, 5)}},
			{Name: "uniform", Title: "uniform keys, no work", Where: "on uniform keys", Rows: []*Row{row("plain", 9000, 60), row("keyway", 27_000, 9)}},
			{Name: "members", Title: "members change", Where: "while members change", How: "1 round of 8 s", Changes: true, Rows: []*Row{row("plain", 4000, 50), hash, row("keyway", 6000, 30)}},
		},
		Checks: []Check{
			{Contender: "plain", Title: "the contender plain", Judgement: right(24_000)},
			{Contender: "lock", Title: "the contender lock", Judgement: right(30_000)},
			{Contender: "hash", Title: "the contender hash", Unsafe: true, Caveat: "right here, wrong when members change", Judgement: lost(100_000, 12)},
			{Contender: "keyway", Title: "the contender keyway", Judgement: right(1_240_000)},
			{Contender: "keyway-batch", Title: "the contender keyway-batch", Judgement: right(50_000)},
			{Contender: "none", Title: "the contender none", Judgement: lost(100_000, 40), Expected: true, Caveat: "excludes nothing"},
		},
		Warnings: []string{"the machine was busy"},
	}
}

func TestJSON(t *testing.T) {
	var first, again bytes.Buffer
	if err := sample().JSON(&first); err != nil {
		t.Fatal(err)
	}
	r := new(Report)
	if err := json.Unmarshal(first.Bytes(), r); err != nil {
		t.Fatal(err)
	}
	if err := r.JSON(&again); err != nil || !bytes.Equal(first.Bytes(), again.Bytes()) {
		t.Errorf("what was read is not what was written (%v)", err)
	}
}

func TestSeries(t *testing.T) {
	if m := (Series{5, 1, 3}).Median(); m != 3 {
		t.Errorf("median of 5, 1, 3: %v", m)
	}
	if m := (Series{4, 1, 3, 2}).Median(); m != 2.5 {
		t.Errorf("median of 4, 1, 3, 2: %v", m)
	}
	if r := (Series{2, 3, 8}).Over(Series{1, 0, 4}); len(r) != 2 || r[0] != 2 || r[1] != 2 || r.Times() != "2.00 ×" || r.Spread("%.1f") != "2.0–2.0" {
		t.Errorf("ratios %v, want 2, 2", r)
	}
}

func TestVerdicts(t *testing.T) {
	tests := []struct {
		name  string
		check Check
		ok    bool
		word  string
	}{
		{"right", Check{}, true, "right"},
		{"overlap", Check{Judgement: Judgement{Resource: resource.Verdict{Overlaps: 1}}}, false, "WRONG"},
		{"lost update", Check{Judgement: Judgement{Resource: resource.Verdict{Lost: 1}}}, false, "WRONG"},
		{"regression", Check{Judgement: Judgement{Resource: resource.Verdict{Regressions: 1}}}, false, "WRONG"},
		{"overtaken", Check{Judgement: Judgement{Resource: resource.Verdict{Overtaken: 1}}}, false, "WRONG"},
		{"not executed", Check{Judgement: Judgement{Missing: 1}}, false, "WRONG"},
		{"fenced after a pause", Check{Judgement: Judgement{Resource: resource.Verdict{Overtaken: 1, Regressions: 1, Refused: 1}, Paused: true}}, true, "stale executions were fenced"},
		{"overlap after a pause", Check{Judgement: Judgement{Resource: resource.Verdict{Overlaps: 1}, Paused: true}}, false, "WRONG"},
		{"caught", Check{Expected: true, Judgement: Judgement{Resource: resource.Verdict{Lost: 1}}}, true, "WRONG, as it must be"},
		{"known to be wrong", Check{Unsafe: true, Judgement: Judgement{Resource: resource.Verdict{Lost: 1}}}, true, "WRONG, as was to be expected"},
		{"not wrong this time", Check{Unsafe: true}, true, "right"},
		{"not caught", Check{Expected: true}, false, "NOT CAUGHT: the test is blind"},
	}
	for _, tt := range tests {
		if tt.check.OK() != tt.ok || tt.check.Verdict() != tt.word {
			t.Errorf("%s: %v, %q", tt.name, tt.check.OK(), tt.check.Verdict())
		}
	}
}

func TestText(t *testing.T) {
	var b bytes.Buffer
	r := sample()
	r.Text(&b, true)
	text := b.String()
	if !strings.HasPrefix(text, "On one hot key Keyway answered 20.0 × the requests of the contender plain") {
		t.Errorf("what changes for the reader does not come first:\n%s", text)
	}
	if strings.Count(text, red) != 3 { // a word in the matrix, a verdict, and a warning
		t.Errorf("%d red passages, want 3:\n%s", strings.Count(text, red), text)
	}
	for _, want := range []string{"3.38 ×", "WRONG, as it must be", "status 502", "kill w1 from 2.0 s", "1 round of 8 s", "1.2 × " + red + "WRONG"} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q:\n%s", want, text)
		}
	}
	r.Checks[1].Resource.Lost = 3
	b.Reset()
	r.Text(&b, true)
	if strings.Count(b.String(), red) != 4 || r.OK() {
		t.Errorf("a lost update is not red:\n%s", b.String())
	}
}

// TestSummary: the sentence says what the run has shown, for better or worse.
func TestSummary(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Report)
		want   string
	}{
		{"as it is", func(*Report) {}, "On one hot key Keyway answered 20.0 × the requests of the contender plain, at 0.25 × the CPU for each."},
		{"one that ought to be right", func(r *Report) {
			r.Checks[2].Caveat = ""
		}, "On one hot key Keyway answered 20.0 × the requests of the contender plain, at 0.25 × the CPU for each; " +
			"the contender hash was WRONG: 12 lost updates, 24 overlaps while members change."},
		{"worse", func(r *Report) {
			r.Scenes = []*Scene{r.Scenes[0]}
			r.Scenes[0].Rows[2], r.Scenes[0].Rows[0] = r.Scenes[0].Rows[0], r.Scenes[0].Rows[2]
			r.Scenes[0].Rows[0].Contender, r.Scenes[0].Rows[2].Contender = "plain", "keyway"
			r.Checks = r.Checks[3:4]
		}, "On zipf 1.1 keys Keyway answered 0.30 × the requests of the contender keyway, at 1.5 × the CPU for each."},
		{"Keyway wrong", func(r *Report) {
			r.Scenes, r.Checks = r.Scenes[:1], r.Checks[3:4]
			r.Checks[0].Resource.Lost = 1
		}, "On zipf 1.1 keys Keyway answered 3.4 × the requests of the contender plain, at 0.66 × the CPU for each, but it was WRONG: 1 lost update."},
		{"open loop", func(r *Report) {
			r.Settings.Rate = 500
			r.Scenes, r.Checks = r.Scenes[:1], nil
		}, "On zipf 1.1 keys Keyway had a p99.9 of 18.0 ms, 0.075 × that of the contender plain, at the same 500 requests per second and 0.66 × the CPU for each."},
		{"without Keyway", func(r *Report) {
			r.Scenes[0].Rows, r.Scenes, r.Checks = r.Scenes[0].Rows[:2], r.Scenes[:1], r.Checks[:2]
		}, "On zipf 1.1 keys the contender lock answered 15.0 k requests per second, 1.9 × those of the contender plain."},
		{"Keyway alone", func(r *Report) {
			r.Scenes[1].Rows, r.Scenes, r.Checks = r.Scenes[1].Rows[2:3], r.Scenes[1:2], r.Checks[3:4]
		}, "On one hot key Keyway answered 40.0 k requests per second."},
		{"blind", func(r *Report) {
			r.Scenes[1].Rows, r.Scenes, r.Checks = r.Scenes[1].Rows[2:3], r.Scenes[1:2], []Check{{Contender: "none", Expected: true}}
		}, "On one hot key Keyway answered 40.0 k requests per second; nothing was noticed of the lack of exclusion in none, so that the rest proves nothing."},
		{"nothing", func(r *Report) { *r = Report{} }, "Nobody was right."},
	}
	for _, tt := range tests {
		r := sample()
		tt.change(r)
		if got := r.Summary(); got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, got, tt.want)
		}
	}
}

// TestRatios: a ratio is that of the medians beside it, whatever the rounds have in common.
func TestRatios(t *testing.T) {
	of := func(rates ...float64) *Row {
		r := new(Row)
		for _, rate := range rates {
			r.Turns = append(r.Turns, Turn{PerSecond: rate})
		}
		return r
	}
	if got := of(30, 40, 90).Over(of(10, 30, 20), PerSecond); got != 2 {
		t.Errorf("40 over 20: %v", got)
	}
	if got := of(10).Over(of(), PerSecond); got != 0 {
		t.Errorf("over nothing: %v", got)
	}
}
