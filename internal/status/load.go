package status

import "math"

// MaxLoadRows is how many partitions [Loads] lists at most. As JSON they take 64 KiB at most.
const MaxLoadRows = 512

// Loads is what the partitions that a worker serves have cost it lately, as averages that decay
// with a time constant of 15 s.
type Loads struct {
	Weight     float64         `json:"weight"`     // the worker's capacity, relative to others
	Total      Work            `json:"total"`      // of all partitions, and of requests without a key
	Unkeyed    Work            `json:"unkeyed"`    // of requests without a key
	Partitions []PartitionLoad `json:"partitions"` // the busiest first, at most [MaxLoadRows]
	Others     int             `json:"others"`     // how many more are not idle
	Rest       Work            `json:"rest"`       // of those
}

// Work is what is done in a second.
type Work struct {
	Executions float64 `json:"executions"` // begun in a second, with keys that other members got to hold
	Running    float64 `json:"running"`    // seconds in a second: how many ran at one time on average
	Queueing   float64 `json:"queueing"`   // seconds in a second: how many waited for keys at one time on average
	Load       float64 `json:"load"`       // Running, and what Keyway itself takes for the executions
}

// PartitionLoad is the work of a partition.
type PartitionLoad struct {
	Partition int `json:"partition"`
	Work
}

// LoadRow is a worker, and what its partitions cost.
type LoadRow struct {
	Worker string `json:"worker"`
	Loads  *Loads `json:"loads,omitempty"`
	Error  string `json:"error,omitempty"` // why it has not told
}

// ClusterLoads are the loads of all members that are workers, by name.
type ClusterLoads struct {
	Workers []LoadRow `json:"workers"`
}

// Add adds other work.
func (w *Work) Add(other Work) {
	w.Executions += other.Executions
	w.Running += other.Running
	w.Queueing += other.Queueing
	w.Load += other.Load
}

// Round returns w in thousandths of an execution and in microseconds.
func (w Work) Round() Work {
	to := func(v, unit float64) float64 { return math.Round(v*unit) / unit }
	return Work{to(w.Executions, 1e3), to(w.Running, 1e6), to(w.Queueing, 1e6), to(w.Load, 1e6)}
}
