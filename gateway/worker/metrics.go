package worker

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyway-go/keyway/gateway/internal/problem"
	"github.com/keyway-go/keyway/gateway/internal/spool"
	"github.com/keyway-go/keyway/gateway/worker/internal/remote"
	"github.com/keyway-go/keyway/internal/metrics"
	"github.com/keyway-go/keyway/internal/status"
)

// The worker's families of metrics; docs/metrics.md describes them.
var (
	families metrics.Families

	executionsMetric   = families.Counter("keyway_worker_executions_total", "Executions that acquired their key; a batch counts once.")
	cancelledMetric    = families.Counter("keyway_worker_executions_cancelled_total", "Executions whose context was cancelled by the worker, once they have ended.", "reason")
	problemsMetric     = families.Counter("keyway_worker_problems_total", "Requests and calls that were refused, or answered in place of the app, by reason.", "kind")
	waitingMetric      = families.Gauge("keyway_worker_waiting", "Requests and calls that wait for a key, or for a partition to arrive.", "for")
	waitMetric         = families.Histogram("keyway_worker_wait_seconds", "How long requests and calls waited for their key; keys that were free at once do not count.")
	runMetric          = families.Histogram("keyway_worker_run_seconds", "How long executions have held their key: of all requests, and of 1 in 127 calls of the program itself.", "of")
	busyKeysMetric     = families.Gauge("keyway_worker_busy_keys", "Keys that executions hold.")
	partitionsMetric   = families.Gauge("keyway_worker_partitions", "Partitions: serving those that the ring gives to the worker, arriving those of them that it does not serve yet, departing those that it serves and the ring gives to another.", "state")
	quarantinedMetric  = families.Gauge("keyway_worker_quarantined_keys", "Keys of the cluster that are quarantined, since workers have died while executions of them ran.")
	placementsMetric   = families.Gauge("keyway_worker_placements", "Partitions that should be this worker's because of their load or by hand, and not by the ring.", "by")
	movesMetric        = families.Counter("keyway_worker_moves_total", "Partitions that the worker has taken over, given away or lost, by reason.", "direction", "reason")
	moveDurationMetric = families.Histogram("keyway_worker_move_duration_seconds", "Duration of a partition's move: from when the ring gives it to this worker until it is served here, or from when it is closed here until another worker owns it.", "direction")
	residueKeysMetric  = families.Gauge("keyway_worker_residue_keys", "Keys of partitions served here that executions at former owners still hold.")
	residueAgeMetric   = families.Gauge("keyway_worker_residue_oldest_seconds", "How long requests have waited for the oldest residue key.")
	slackMetric        = families.Gauge("keyway_worker_session_slack_seconds", "Time until the worker stops admitting unless its session is renewed.")
	sessionsLostMetric = families.Counter("keyway_worker_sessions_lost_total", "Sessions that were lost, so that a new incarnation began.")
	storeCallMetric    = families.Histogram("keyway_worker_store_call_duration_seconds", "Time of calls to the store.", "call")
	storeErrorsMetric  = families.Counter("keyway_worker_store_errors_total", "Calls to the store that failed.", "call")
	sharedMetric       = families.Counter("keyway_worker_shared_answers_total", "Requests and calls that did not run because they got the answer to an equal one.")
	mismatchesMetric   = families.Counter("keyway_key_mismatches_total", "Answers whose app says that it worked on another key than the execution's.")
	locksMetric        = families.Gauge("keyway_worker_locks", "Keys that other members hold here.")
	locksWrittenMetric = families.Gauge("keyway_worker_locks_written", "Keys that other members hold here and that the store keeps too, so that they outlive the worker.")
	locksWaitingMetric = families.Gauge("keyway_worker_locks_waiting", "Calls of other members that wait for keys to hold here.")
	lockEventsMetric   = families.Counter("keyway_worker_lock_events_total", "Events of keys that other members hold at this worker.", "event")
	lockWaitMetric     = families.Histogram("keyway_worker_lock_wait_seconds", "How long other members waited for the keys that they hold at this worker.")
	appUpMetric        = families.Gauge("keyway_worker_app_up", "Whether the app behind the sidecar answers; missing where there is none.")
	answersMetric      = families.Gauge("keyway_worker_answers_bytes", "Bytes of answers that clients have not read yet, in memory or in temporary files.", "place")
	loadMetric         = families.Gauge("keyway_worker_load", "Seconds a second that executions take, as an average of the last 15 s.")
	busiestMetric      = families.Gauge("keyway_worker_load_busiest_partition", "The part of keyway_worker_load that is of the busiest partition.")
	readyMetric        = families.Gauge("keyway_worker_ready", "Whether the worker admits requests.")
)

var _ prometheus.Collector = (*Worker)(nil)

// Describe implements [prometheus.Collector].
func (w *Worker) Describe(ch chan<- *prometheus.Desc) {
	families.Describe(ch)
	w.counts.batches.Describe(ch)
}

// newBatchItems returns a histogram of the items of each batch.
func newBatchItems() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "keyway_worker_batch_items", Help: "Requests and calls that were handled together in a batch.", Buckets: prometheus.ExponentialBuckets(1, 2, 11),
	})
}

// Collect implements [prometheus.Collector].
func (w *Worker) Collect(ch chan<- prometheus.Metric) {
	w.collectExecutions(ch)
	w.collectOwnership(ch)
	w.collectLoad(ch)
	w.shell.StoreCalls(func(call string, took metrics.Distribution, failed int64) {
		metrics.SendHistogram(ch, storeCallMetric, took, call)
		metrics.Send(ch, storeErrorsMetric, failed, call)
	})
	c := &w.counts
	c.batches.Collect(ch)
	metrics.Send(ch, sharedMetric, c.shared.Load())
	metrics.Send(ch, mismatchesMetric, w.claims.mismatches.Load())
	metrics.Send(ch, locksMetric, w.locks.Held.Load())
	metrics.Send(ch, locksWrittenMetric, w.locks.Kept.Load())
	metrics.Send(ch, locksWaitingMetric, w.locks.Waiting())
	for e := range remote.Events {
		metrics.Send(ch, lockEventsMetric, w.locks.Events[e].Load(), e.String())
	}
	metrics.SendHistogram(ch, lockWaitMetric, w.locks.Waits.Distribution())
	metrics.Send(ch, answersMetric, w.answers.InUse(spool.Memory), "memory")
	metrics.Send(ch, answersMetric, w.answers.InUse(spool.Disk), "files")
	if up, watched := w.appUp(); watched {
		metrics.Send(ch, appUpMetric, number(up))
	}
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (w *Worker) collectExecutions(ch chan<- prometheus.Metric) {
	c := &w.counts
	for k := range problem.Kinds {
		if n := c.problems[k].Load(); n > 0 {
			metrics.Send(ch, problemsMetric, n, k.String())
		}
	}
	metrics.Send(ch, problemsMetric, c.left.Load(), "left")
	metrics.Send(ch, cancelledMetric, w.keys.Counts.TimedOut.Load(), "timeout")
	metrics.Send(ch, cancelledMetric, w.keys.Counts.Lost.Load(), "ownership-lost")
	metrics.Send(ch, cancelledMetric, w.keys.Counts.Abandoned.Load(), "abandoned")
	metrics.Send(ch, waitingMetric, w.keys.Waiting(), "key")
	metrics.Send(ch, waitingMetric, w.keys.Awaiting.Load(), "partition")
	metrics.SendHistogram(ch, waitMetric, w.keys.Counts.Waits.Distribution())
	metrics.SendHistogram(ch, runMetric, w.keys.Counts.Requests.Distribution(), "request")
	metrics.SendHistogram(ch, runMetric, w.keys.Counts.Calls.Distribution(), "call")
}

func (w *Worker) collectLoad(ch chan<- prometheus.Metric) {
	loads, busiest := w.Loads(), status.PartitionLoad{}
	if len(loads.Partitions) > 0 {
		busiest = loads.Partitions[0]
	}
	metrics.Send(ch, loadMetric, loads.Total.Load)
	metrics.Send(ch, busiestMetric, busiest.Load)
}

// collectOwnership collects what concerns partitions and the session.
func (w *Worker) collectOwnership(ch chan<- prometheus.Metric) {
	s := w.Status()
	var busy, residue int
	for i := range w.keys.Parts {
		keys := w.keys.Parts[i].Table.Stats()
		busy += keys.Held
		residue += keys.Blocked
	}
	metrics.Send(ch, executionsMetric, s.Executions)
	metrics.Send(ch, busyKeysMetric, busy)
	metrics.Send(ch, partitionsMetric, s.Served-s.Departing, "serving")
	metrics.Send(ch, partitionsMetric, s.Arriving, "arriving")
	metrics.Send(ch, partitionsMetric, s.Departing, "departing")
	placed := map[string]int{"load": 0, "hand": 0}
	for _, p := range status.PlacementsOf(w.cfg.Members.View()) {
		if p.Worker == w.name {
			placed[p.By]++
		}
	}
	for by, n := range placed {
		metrics.Send(ch, placementsMetric, n, by)
	}
	metrics.Send(ch, quarantinedMetric, len(s.Quarantined))
	metrics.Send(ch, residueKeysMetric, residue)
	metrics.Send(ch, residueAgeMetric, w.shell.Moves.OldestResidue().Seconds())
	w.shell.Moves.Report(func(direction, reason string, n int64) {
		metrics.Send(ch, movesMetric, n, direction, reason)
	}, func(direction string, took metrics.Distribution) {
		metrics.SendHistogram(ch, moveDurationMetric, took, direction)
	})
	metrics.Send(ch, slackMetric, s.SessionSlackSeconds)
	metrics.Send(ch, sessionsLostMetric, w.shell.SessionsLost())
	metrics.Send(ch, readyMetric, number(s.NotReady == ""))
}
