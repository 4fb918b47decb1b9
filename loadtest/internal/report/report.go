// Package report holds what a load test found out, and shows it: as a table, as
// JSON and CSV, as a page with charts, and beside another one.
package report

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"
)

// Format is the version of the JSON.
const Format = 2

// Report is the results of one run of the load test.
type Report struct {
	Format   int               `json:"format"`
	Started  time.Time         `json:"started"`
	Took     float64           `json:"took_seconds"`
	Command  string            `json:"command"`
	Machine  Machine           `json:"machine"`
	Versions map[string]string `json:"versions"` // of programs and modules
	Settings Settings          `json:"settings"`
	Scenes   []*Scene          `json:"scenes"`
	Checks   []Check           `json:"checks"`
	Warnings []string          `json:"warnings,omitempty"`
}

// Machine is where it ran.
type Machine struct {
	CPU      string  `json:"cpu"`
	Cores    int     `json:"cores"`
	MemoryGB float64 `json:"memory_gb"`
	System   string  `json:"system"`
	Load     float64 `json:"load_before"` // average of a minute, before the run
}

// Settings are what all of it was run with.
type Settings struct {
	Clients   int     `json:"clients"`
	Rate      float64 `json:"rate,omitempty"` // requests/s of an open loop; 0: closed
	Rounds    int     `json:"rounds"`
	Seconds   float64 `json:"seconds"`
	WarmUp    float64 `json:"warm_up_seconds"`
	Instances int     `json:"instances"`
	Keys      int     `json:"keys"`
	Skew      float64 `json:"skew"`
	Reads     float64 `json:"reads"`
	Wait      string  `json:"wait"`
	TTL       string  `json:"ttl"`
	Poll      string  `json:"poll"`
	Events    string  `json:"events,omitempty"`
	RTT       string  `json:"rtt,omitempty"` // of the network between processes; "" for the loopback's own
}

// Scene is a workload with the rows of all contenders.
type Scene struct {
	Name    string `json:"name"`
	Title   string `json:"title"`
	Where   string `json:"where"` // as a part of a sentence, such as "on one hot key"
	How     string `json:"how"`   // rounds, times and events
	Changes bool   `json:"members_change"`
	Rows    []*Row `json:"rows"` // the first one is the baseline
}

// Row is a contender in a scene.
type Row struct {
	Contender string     `json:"contender"`
	Title     string     `json:"title"`
	Number    int        `json:"number"`    // in the run, from 0: the same contender has the same in all scenes
	Turns     []Turn     `json:"turns"`     // by round
	Quantiles []Quantile `json:"quantiles"` // of all rounds
	Series    []Point    `json:"series"`    // of the last round
	Marks     []Mark     `json:"marks"`     // of the last round
	Failures  []Failure  `json:"failures"`  // of all rounds
	Judged    Judgement  `json:"judged"`    // in all rounds
}

// Turn is a contender's turn in a round.
type Turn struct {
	Seconds   float64            `json:"seconds"`
	Answered  int64              `json:"answered"`
	Failed    int64              `json:"failed"`
	PerSecond float64            `json:"per_second"`
	P50       float64            `json:"p50_ms"`
	P99       float64            `json:"p99_ms"`
	P999      float64            `json:"p999_ms"`
	Max       float64            `json:"max_ms"`
	Wait50    float64            `json:"wait_p50_ms"` // until the critical section began
	Wait99    float64            `json:"wait_p99_ms"`
	Fairness  float64            `json:"fairness"`                     // least over most answers to a client; -1 in an open loop
	CPU       map[string]float64 `json:"cpu_us_per_request"`           // by group of processes
	Commands  float64            `json:"store_commands"`               // per request; -1 if not known
	Generator float64            `json:"generator_core_share"`         // of one core
	Network   float64            `json:"network_core_share,omitempty"` // of one core, used by what delays the network
	Busy      float64            `json:"machine_busy_by_stack"`        // share of all cores that the stack used
}

// AllCPU is microseconds of CPU time per request, of all processes but the load
// generator.
func (t Turn) AllCPU() (sum float64) {
	for _, us := range t.CPU {
		sum += us
	}
	return sum
}

// Quantile is a point of a distribution of latencies.
type Quantile struct {
	Quantile float64 `json:"q"`
	Millis   float64 `json:"ms"`
}

// Point is what happened in an interval.
type Point struct {
	At        float64 `json:"t"` // end of the interval in seconds
	PerSecond float64 `json:"per_second"`
	Failed    int64   `json:"failed"`
	P50       float64 `json:"p50_ms"` // 0 without answers
	P99       float64 `json:"p99_ms"`
}

// Mark is something that was made happen.
type Mark struct {
	At   float64 `json:"t"`
	Done float64 `json:"done"`
	What string  `json:"what"`
}

// Failure is why requests failed.
type Failure struct {
	Why   string `json:"why"`
	Count int64  `json:"count"`
}

// Figure is one that turns have.
type Figure func(Turn) float64

// PerSecond is the answers per second.
func PerSecond(t Turn) float64 { return t.PerSecond }

// P50 is the median latency in milliseconds.
func P50(t Turn) float64 { return t.P50 }

// P99 is the latency in milliseconds that 99% do not exceed.
func P99(t Turn) float64 { return t.P99 }

// P999 is the latency in milliseconds that 99.9% do not exceed.
func P999(t Turn) float64 { return t.P999 }

// CPU is microseconds of CPU time per request; see [Turn.AllCPU].
func CPU(t Turn) float64 { return t.AllCPU() }

// Commands is the commands to the store per request, or -1 if not known.
func Commands(t Turn) float64 { return t.Commands }

// Wait50 is the median wait for the critical section in milliseconds.
func Wait50(t Turn) float64 { return t.Wait50 }

// Wait99 is the wait in milliseconds that 99% do not exceed.
func Wait99(t Turn) float64 { return t.Wait99 }

// Fairness is the least over the most answers to a client, or -1 in an open loop.
func Fairness(t Turn) float64 { return t.Fairness }

// Values are a figure's in all rounds.
func (r *Row) Values(f Figure) (values []float64) {
	for _, t := range r.Turns {
		values = append(values, f(t))
	}
	return values
}

// Median is a figure's over the rounds.
func (r *Row) Median(f Figure) float64 { return Median(r.Values(f)) }

// Over is the ratio of a figure's median to another row's, as the report shows both; 0 if
// there is none.
func (r *Row) Over(base *Row, f Figure) float64 {
	if b := base.Median(f); b > 0 {
		return r.Median(f) / b
	}
	return 0
}

// Failed is how many requests failed in all rounds.
func (r *Row) Failed() (n int64) {
	for _, t := range r.Turns {
		n += t.Failed
	}
	return n
}

// Median is 0 for no values.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// NetworkCost is how busy what delays the network was, as a share of one core: in
// the row where it was least, and where it was most. Both are 0 without a delay.
func (r *Report) NetworkCost() (least, most float64) {
	for _, s := range r.Scenes {
		for _, row := range s.Rows {
			share := row.Median(func(t Turn) float64 { return t.Network })
			if most == 0 || share < least {
				least = share
			}
			most = max(most, share)
		}
	}
	return least, most
}

// NetworkText says what the network was; "" for the loopback.
func (r *Report) NetworkText() string {
	if r.Settings.RTT == "" {
		return ""
	}
	least, most := r.NetworkCost()
	return fmt.Sprintf("Round trips of %s between clients, front, workers and stores, half of it each way. What delays them took %.0f to %.0f %% of a core, which is not in the CPU per request.",
		r.Settings.RTT, 100*least, 100*most)
}

// Row returns a contender's row; nil if there is none.
func (s *Scene) Row(contender string) *Row {
	for _, r := range s.Rows {
		if r.Contender == contender {
			return r
		}
	}
	return nil
}

// Scene returns one by its name; nil if there is none.
func (r *Report) Scene(name string) *Scene {
	for _, s := range r.Scenes {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// Read reads a report's JSON.
func Read(path string) (*Report, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	r := new(Report)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("report: %s: %w", path, err)
	}
	if r.Format != Format {
		return nil, fmt.Errorf("report: %s has format %d, want %d: make it again", path, r.Format, Format)
	}
	return r, nil
}

// JSON writes the report's.
func (r *Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(r)
}

// CSV writes a line for each turn.
func (r *Report) CSV(w io.Writer) error {
	c := csv.NewWriter(w)
	lines := [][]string{{"scene", "contender", "round", "seconds", "answered", "failed", "per_second", "p50_ms", "p99_ms", "p999_ms", "max_ms",
		"wait_p50_ms", "wait_p99_ms", "fairness", "cpu_us_per_request", "cpu_front_us", "cpu_app_us", "cpu_store_us", "store_commands_per_request", "generator_core_share"}}
	number := func(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
	for _, s := range r.Scenes {
		for _, row := range s.Rows {
			for i, t := range row.Turns {
				lines = append(lines, []string{s.Name, row.Contender, strconv.Itoa(i + 1), number(t.Seconds), fmt.Sprint(t.Answered), fmt.Sprint(t.Failed),
					number(t.PerSecond), number(t.P50), number(t.P99), number(t.P999), number(t.Max), number(t.Wait50), number(t.Wait99), number(t.Fairness),
					number(t.AllCPU()), number(t.CPU["front"]), number(t.CPU["app"]), number(t.CPU["store"]), number(t.Commands), number(t.Generator)})
			}
		}
	}
	return c.WriteAll(lines)
}
