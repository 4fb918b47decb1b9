package admin

import (
	"slices"
	"time"

	"github.com/keyway-go/keyway/internal/status"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// liveTraffic is the load of this process: requests of a router, or executions of a worker.
type liveTraffic struct {
	Of              string   `json:"of"`                          // requests or executions
	PerSecond       *float64 `json:"per_second,omitempty"`        // that have ended; of the last 10 s, as all rates
	FailedPerSecond *float64 `json:"failed_per_second,omitempty"` // answered with 5xx
	P99Seconds      *float64 `json:"p99_seconds,omitempty"`       // as histograms tell it; nothing if nothing has ended
	Beyond          bool     `json:"beyond,omitempty"`            // P99Seconds is the least that it may be
	Held            int      `json:"held"`                        // requests that wait for a worker that takes them
	InFlight        int      `json:"in_flight"`                   // requests that are not answered yet
}

// sampleSpan is the time that rates are averaged over.
const sampleSpan = 10 * time.Second

// history is what the last samples were. The zero value has none.
type history struct {
	samples []sample // the oldest first
}

// sample is what was counted until a moment.
type sample struct {
	at    time.Time
	sums  map[string]float64 // of counters and gauges by name, all labels together; and executions of workers by incarnation
	took  []bucket           // of requests or executions, without the last bucket
	ended float64            // of these, in all buckets
}

// bucket is how many took that long at most.
type bucket struct {
	seconds, count float64
}

// The metrics that are looked at; docs/metrics.md describes them.
const (
	routerRequests = "keyway_router_requests_total"
	routerDuration = "keyway_router_request_duration_seconds"
	routerHeld     = "keyway_router_held_requests"
	routerInFlight = "keyway_router_requests_in_flight"
	workerRuns     = "keyway_worker_run_seconds"
	workerCount    = "keyway_worker_executions_total"

	routerFailed = routerRequests + " 5xx" // of these, the answers with 5xx
)

// add adds a sample of the process's metrics, if it has any, and of the workers' rows.
func (h *history) add(now time.Time, metrics prometheus.Gatherer, rows []status.WorkerRow) {
	s := sample{at: now, sums: map[string]float64{routerRequests: 0, routerFailed: 0}}
	if metrics != nil {
		families, _ := metrics.Gather() // what one part cannot tell is missing
		s.read(families)
	}
	for _, row := range rows {
		if row.Status != nil {
			s.sums[row.Status.Incarnation] = float64(row.Status.Executions)
		}
	}
	h.samples = append(slices.DeleteFunc(h.samples, func(s sample) bool { return now.Sub(s.at) > sampleSpan }), s)
}

// read adds up what the metrics of families are.
func (s *sample) read(families []*dto.MetricFamily) {
	for _, f := range families {
		name := f.GetName()
		for _, m := range f.GetMetric() {
			n := m.GetCounter().GetValue() + m.GetGauge().GetValue() // one of them is 0
			s.sums[name] += n
			if name == routerRequests && slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == "code" && l.GetValue() == "5xx" }) {
				s.sums[routerFailed] += n
			}
			if name == routerDuration || name == workerRuns {
				s.ended += float64(m.GetHistogram().GetSampleCount())
				s.spread(m.GetHistogram().GetBucket())
			}
		}
	}
}

// spread adds a histogram, whose buckets are those of the ones before.
func (s *sample) spread(buckets []*dto.Bucket) {
	for i, b := range buckets {
		if i == len(s.took) {
			s.took = append(s.took, bucket{seconds: b.GetUpperBound()})
		}
		s.took[i].count += float64(b.GetCumulativeCount())
	}
}

// traffic returns the load of the process, nil if it is unknown.
func (h *history) traffic() *liveTraffic {
	first, last := &h.samples[0], &h.samples[len(h.samples)-1]
	t, total := &liveTraffic{Of: "requests"}, routerRequests
	_, routes := last.sums[routerInFlight]
	_, works := last.sums[workerCount]
	switch {
	case works && !routes:
		t.Of, total = "executions", workerCount
	case !routes:
		return nil
	}
	t.Held, t.InFlight = int(last.sums[routerHeld]), int(last.sums[routerInFlight])
	t.PerSecond = h.rate(total)
	if routes {
		t.FailedPerSecond = h.rate(routerFailed)
	}
	t.P99Seconds, t.Beyond = quantile(0.99, first, last)
	return t
}

// quantile returns how long a share of the work that ended between two samples took at most, or nil
// if none ended. Within its bucket it assumes an even spread. beyond says that the value lies in
// the last bucket, which has no upper bound.
func quantile(share float64, first, last *sample) (seconds *float64, beyond bool) {
	rank := share * (last.ended - first.ended)
	if rank <= 0 {
		return nil, false
	}
	var lower bucket
	for i, b := range last.took {
		if i < len(first.took) {
			b.count -= first.took[i].count
		}
		if b.count >= rank {
			return new(lower.seconds + (b.seconds-lower.seconds)*(rank-lower.count)/(b.count-lower.count)), false
		}
		lower = b
	}
	return new(lower.seconds), true
}

// rate returns by how much a sum rises in a second, nil if that is not known.
func (h *history) rate(of string) *float64 {
	last := &h.samples[len(h.samples)-1]
	for _, s := range h.samples {
		n, ok := s.sums[of]
		if span := last.at.Sub(s.at).Seconds(); ok && span > 0 {
			return new((last.sums[of] - n) / span)
		}
	}
	return nil
}
