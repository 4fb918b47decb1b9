package keyed

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/internal/policy"
	"github.com/keyway-go/keyway/internal/status"
)

const (
	loadTime    = 15 * time.Second // time constant of the averages
	loadEvery   = time.Second      // between two updates of the averages, at least
	loadSamples = 16               // how many earlier samples of a partition's calls its new ones are averaged with
	loadPrior   = 4                // samples that a partition is taken to have as the worker's others

	// Processor time that Keyway itself takes for an execution: of a request (docs/metrics.md), or
	// of a call of the program (BenchmarkDo).
	requestCost, callCost = 15 * time.Microsecond, 200 * time.Nanosecond
)

// count is something that a tally counts.
type count uint8

const (
	countUnkeyed  count = iota // requests without a key, which are no work of the partition that admits them
	countHolds                 // keys that other members got to hold
	countRequests              // executions of requests that have begun
	countRan                   // ns that those that have ended took
	countSamples               // sampled executions of calls that have ended
	countSampled               // ns that they took
	countWaited                // ns of waits for keys that have ended
	counts
)

// tally counts the work of a partition since its load was last asked for. It takes 72 bytes.
type tally struct {
	opened  atomic.Int64 // when the partition opened, in ns since the worker's start; 0 if it is closed
	granted atomic.Int64 // by its table, until the tally began
	counts  [counts]atomic.Int64
}

func (t *tally) take(c count) float64 { return float64(t.counts[c].Swap(0)) }

// noteOpen begins the partition's load anew if it has opened.
func (p *Partition) noteOpen() {
	t := &p.tally
	switch open := p.Open.Load(); {
	case !open:
		t.opened.Store(0)
	case t.opened.Load() == 0:
		for c := range counts {
			t.take(c)
		}
		t.granted.Store(p.Table.Stats().Granted)
		t.opened.Store(int64(max(p.keys.Now(), 1)))
	}
}

// Waited counts a wait for a key of the partition.
func (p *Partition) Waited(took time.Duration) {
	p.keys.Counts.Waits.Observe(p.Number, took)
	p.tally.counts[countWaited].Add(int64(took))
}

// tally returns where the work of r is counted.
func (r *run) tally() *tally {
	if r.policy != nil && r.policy.Mode == policy.Unkeyed {
		return &r.part.keys.unkeyed.tally
	}
	return &r.part.tally
}

// loads are averages of what each partition costs, and of what requests without a key cost. The
// first question in a second updates them; nothing else does. They take 64 bytes a partition, from
// the first question on.
type loads struct {
	mu       sync.Mutex // guards what follows
	at       time.Duration
	averages []average // by partition; the last is that of requests without a key
	answer   status.Loads
}

// average is the average work of a partition. Values decay with loadTime, from when it opened.
type average struct {
	opened, at       time.Duration // at is until when its tally is counted
	work             status.Work
	samples, sampled float64 // of calls: how many, and how many seconds they took
}

// Loads returns what the partitions cost lately, without the worker's weight. It must not be changed.
func (k *Keys) Loads() status.Loads {
	l, now := &k.loads, k.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.averages == nil || now-l.at >= loadEvery {
		l.updateLocked(k, now)
	}
	return l.answer
}

func (l *loads) updateLocked(k *Keys, now time.Duration) {
	if l.averages == nil {
		l.averages = make([]average, len(k.Parts)+1)
	}
	l.at = now
	samples, sampled := 0.0, 0.0
	for i := range k.Parts {
		a := &l.averages[i]
		a.sample(&k.Parts[i].tally)
		samples, sampled = samples+a.samples, sampled+a.sampled
	}
	mean, unkeyed := sampled/max(samples, 1), &l.averages[len(k.Parts)]
	unkeyed.sample(&k.unkeyed.tally)
	unkeyed.add(&k.unkeyed, 0, now)
	answer := status.Loads{Partitions: []status.PartitionLoad{}, Unkeyed: unkeyed.work.Round(), Total: unkeyed.work}
	for i := range k.Parts {
		a := &l.averages[i]
		a.add(&k.Parts[i], mean, now)
		if work := a.work.Round(); work != (status.Work{}) {
			answer.Partitions = append(answer.Partitions, status.PartitionLoad{Partition: i, Work: work})
		}
		answer.Total.Add(a.work)
	}
	slices.SortFunc(answer.Partitions, func(a, b status.PartitionLoad) int {
		return cmp.Or(cmp.Compare(b.Load, a.Load), cmp.Compare(a.Partition, b.Partition))
	})
	listed := min(len(answer.Partitions), status.MaxLoadRows)
	for _, p := range answer.Partitions[listed:] {
		answer.Others++
		answer.Rest.Add(p.Work)
	}
	answer.Partitions = slices.Clone(answer.Partitions[:listed])
	answer.Total, answer.Rest = answer.Total.Round(), answer.Rest.Round()
	l.answer = answer
}

// sample takes over the samples of calls. A partition that has opened since begins anew.
func (a *average) sample(t *tally) {
	if opened := time.Duration(t.opened.Load()); opened == 0 || opened != a.opened {
		*a = average{opened: opened, at: opened}
	}
	keep := min(1, loadSamples/max(a.samples, 1))
	a.samples = a.samples*keep + t.take(countSamples)
	a.sampled = a.sampled*keep + t.take(countSampled)/1e9
}

// add takes over the rest, until now, if that is a second or more. A call of the worker takes mean seconds.
func (a *average) add(p *Partition, mean float64, now time.Duration) {
	if a.opened == 0 || now-a.at < loadEvery {
		return
	}
	t, granted := &p.tally, p.Table.Stats().Granted
	span, age := (now - a.at).Seconds(), (now - a.opened).Seconds()
	a.at = now
	requests := t.take(countRequests)
	executions := max(float64(granted-t.granted.Swap(granted))-t.take(countUnkeyed), requests)
	calls := max(executions-t.take(countHolds)-requests, 0)
	running := t.take(countRan)/1e9 + calls*(a.sampled+loadPrior*mean)/(a.samples+loadPrior)
	cost := calls*callCost.Seconds() + (executions-calls)*requestCost.Seconds()
	gain := math.Expm1(-span/loadTime.Seconds()) / math.Expm1(-age/loadTime.Seconds())
	w := &a.work
	w.Executions += gain * (executions/span - w.Executions)
	w.Running += gain * (running/span - w.Running)
	w.Queueing += gain * (t.take(countWaited)/1e9/span - w.Queueing)
	w.Load += gain * ((running+cost)/span - w.Load)
}
