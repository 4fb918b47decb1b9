package worker

import (
	"errors"
	"fmt"
	"time"

	"github.com/keyway-go/keyway/ring/handoff"
)

// Waiting says what has to happen before a partition that nobody else is
// known to own is served, and how long that takes, if it is known.
func (s *shell) Waiting(partition int, record *handoff.Record) (wait time.Duration, what string) {
	w := s.w
	if w.keys.Draining.Load() {
		return 0, "this worker is leaving"
	}
	if trouble := w.trouble.Load(); trouble != nil {
		return 0, fmt.Sprintf("this worker, %s, does not work: %v", w.name, *trouble)
	}
	target, ok := w.cfg.Members.View().Owner(partition)
	if !ok {
		return 0, "no active worker is known yet"
	}
	if record == nil {
		record = new(handoff.Record)
	} else if record.Owner != "" && record.Owner == w.Incarnation() {
		return 0, "it is this worker's, which does not serve it at the moment"
	}
	if wait, what = w.obstacle(*record); what != "" {
		what = ": " + what
	}
	return wait, fmt.Sprintf("the ring gives it to worker %s, which has not claimed it yet%s", target.Name, what)
}

// obstacle says what keeps a worker from claiming a partition with that record, "" for nothing that is known, and for how
// long yet.
func (w *Worker) obstacle(record handoff.Record) (wait time.Duration, what string) {
	wait, obstacle := w.outlook.Load().Claimable(record, w.keys.Instant(time.Now()).Mono)
	switch obstacle {
	case handoff.ObstacleSession:
		return wait, w.shell.calls.because(errors.New("this worker has no session in the store yet")).Error()
	case handoff.ObstacleSettle:
		return wait, "the members changed a moment ago"
	case handoff.ObstacleQuarantine:
		return wait, fmt.Sprintf("the store has no trace of this cluster, was restarted or lost data: for one TTL (%v) nothing is claimed that a worker may serve of which the store does not know; a cluster that is new skips that with --new-cluster (Config.NewCluster)", w.settings.TTL)
	case handoff.ObstacleOwner:
		return wait, "the session of its last owner, which is gone, is not over"
	}
	return 0, ""
}
