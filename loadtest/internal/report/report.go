// Package report holds what a load test found out, and shows it: as a table, as
// JSON, and as a page with charts.
//
// Files: series.go has what the other measurements share with it, plot.go a plot for them; report.go the
// results, check.go whether they are right; then summary.go, table.go, html.go with chart.go.
package report

import (
	"encoding/json"
	"io"
	"slices"
	"time"
)

// Format is the version of the JSON.
const Format = 3

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
	TTL       string  `json:"ttl"`
	Poll      string  `json:"poll"`
	Events    string  `json:"events,omitempty"`
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
	Contender string           `json:"contender"`
	Title     string           `json:"title"`
	Number    int              `json:"number"`    // in the run, from 0: the same contender has the same in all scenes
	Turns     []Turn           `json:"turns"`     // by round
	Quantiles []Quantile       `json:"quantiles"` // of all rounds
	Series    []Point          `json:"series"`    // of the last round
	Marks     []Mark           `json:"marks"`     // of the last round
	Failures  map[string]int64 `json:"failures"`  // of all rounds, by why
	Judged    Judgement        `json:"judged"`    // in all rounds
}

// Turn is the figures of a contender's turn in a round.
type Turn map[Figure]float64

// Figure is one that turns have.
type Figure string

// Figures.
const (
	Seconds   Figure = "seconds"
	Answered  Figure = "answered"
	Failed    Figure = "failed"
	PerSecond Figure = "per_second"
	P50       Figure = "p50_ms"
	P99       Figure = "p99_ms"
	P999      Figure = "p999_ms"
	Fairness  Figure = "fairness"           // least over most answers to a client; -1 in an open loop
	CPU       Figure = "cpu_us_per_request" // of all processes but the load generator
	FrontCPU  Figure = "cpu_front_us"       // the parts of CPU
	AppCPU    Figure = "cpu_app_us"
	StoreCPU  Figure = "cpu_store_us"
	Commands  Figure = "store_commands_per_request" // -1 if not known
	Generator Figure = "generator_core_share"       // of one core
)

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
	P99       float64 `json:"p99_ms"` // 0 without answers
}

// Mark is something that was made happen.
type Mark struct {
	At   float64 `json:"t"`
	Done float64 `json:"done"`
	What string  `json:"what"`
}

// Values are a figure's in all rounds.
func (r *Row) Values(f Figure) (values Series) {
	for _, t := range r.Turns {
		values = append(values, t[f])
	}
	return values
}

// Median is a figure's over the rounds.
func (r *Row) Median(f Figure) float64 { return r.Values(f).Median() }

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
		n += int64(t[Failed])
	}
	return n
}

// Row returns a contender's row; nil if there is none.
func (s *Scene) Row(contender string) *Row {
	if i := slices.IndexFunc(s.Rows, func(r *Row) bool { return r.Contender == contender }); i >= 0 {
		return s.Rows[i]
	}
	return nil
}

// JSON writes the report's.
func (r *Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(r)
}
