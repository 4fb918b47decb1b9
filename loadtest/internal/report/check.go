package report

import (
	"slices"
	"strings"

	"github.com/keyway-go/keyway/loadtest/internal/resource"
)

// Check is the verdict on a contender, over the whole run.
type Check struct {
	Contender string `json:"contender"`
	Title     string `json:"title"`
	Expected  bool   `json:"expected_wrong"`   // it must be caught
	Unsafe    bool   `json:"may_be_wrong"`     // it need not be right in this run
	Caveat    string `json:"caveat,omitempty"` // on what it is wrong at; "" if it ought always to be right
	Judgement
}

// Judgement is what was answered, and what the resource has seen of it.
type Judgement struct {
	Answered int64            `json:"answered"`
	Missing  int64            `json:"answered_without_execution"`
	Resource resource.Verdict `json:"resource"`
	Paused   bool             `json:"paused"` // a process was, so that fenced executions are to be expected
}

// Add adds what was seen at another time.
func (j *Judgement) Add(o Judgement) {
	j.Answered += o.Answered
	j.Missing += o.Missing
	j.Resource.Add(o.Resource)
	j.Paused = j.Paused || o.Paused
}

// fault is a number of one kind of what can go wrong.
type fault struct {
	n         int64
	one, many string
}

// faults are those that there were.
func (j Judgement) faults() []fault {
	v := j.Resource
	all := []fault{{v.Lost, "lost update", "lost updates"}, {v.Overlaps, "overlap", "overlaps"}, {j.Missing, "answer without an execution", "answers without an execution"}}
	if !j.Paused {
		all = append(all, fault{v.Overtaken, "overtaken execution", "overtaken executions"}, fault{v.Regressions, "token that fell", "tokens that fell"})
	}
	return slices.DeleteFunc(all, func(f fault) bool { return f.n <= 0 })
}

// Faults is how much went wrong.
func (j Judgement) Faults() (n int64) {
	for _, f := range j.faults() {
		n += f.n
	}
	return n
}

// FaultText says what went wrong; "" if nothing did.
func (j Judgement) FaultText() string {
	var all []string
	for _, f := range j.faults() {
		kind := f.many
		if f.n == 1 {
			kind = f.one
		}
		all = append(all, whole(f.n)+" "+kind)
	}
	return strings.Join(all, ", ")
}

// OK is false if the contender was wrong and should not be, or the other way
// round.
func (c Check) OK() bool { return c.Unsafe || (c.Faults() > 0) == c.Expected }

// Verdict is a word on it.
func (c Check) Verdict() string {
	switch {
	case c.Expected && c.OK():
		return "WRONG, as it must be"
	case c.Expected:
		return "NOT CAUGHT: the test is blind"
	case c.Faults() > 0 && c.Unsafe:
		return "WRONG, as was to be expected"
	case c.Faults() > 0:
		return "WRONG"
	case c.Resource.Overtaken+c.Resource.Regressions > 0:
		return "stale executions were fenced"
	}
	return "right"
}

// Class is good, bad, or expected for one that was caught as it must be.
func (c Check) Class() string {
	switch {
	case c.Expected && c.OK():
		return "expected"
	case c.Faults() > 0 || !c.OK():
		return "bad"
	}
	return "good"
}

// OK reports whether every contender was right, or caught if it must be.
func (r *Report) OK() bool {
	return !slices.ContainsFunc(r.Checks, func(c Check) bool { return !c.OK() })
}

// Check returns a contender's; nil if there is none.
func (r *Report) Check(contender string) *Check {
	if i := slices.IndexFunc(r.Checks, func(c Check) bool { return c.Contender == contender }); i >= 0 {
		return &r.Checks[i]
	}
	return nil
}
