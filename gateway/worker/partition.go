package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/gateway/worker/internal/remote"
	"github.com/keyway-go/keyway/localmutex"
	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/handoff"
)

// Token layout: epoch<<sequenceBits | sequence.
const (
	sequenceBits = 20
	// A worker asks for the next epoch when half of the sequence is used, so
	// that it has it long before the rest runs out.
	sequenceLow = 1 << (sequenceBits - 1)
)

// TokenEpoch returns the epoch of the ownership under which a token was minted.
func TokenEpoch(token int64) int64 { return token >> sequenceBits }

// partition is the request path's side of one partition. The shell, which
// drives the ownership machine, opens and closes it.
type partition struct {
	worker *Worker
	number int
	table  localmutex.Table
	open   atomic.Bool                    // what the table is; for those who wait
	record atomic.Pointer[handoff.Record] // the last one known; for refused requests
	asked  atomic.Int64                   // the epoch whose successor was asked for
	term   atomic.Uint64                  // goes up each time the partition is given away
	locks  lockTable

	cancels atomic.Uint64            // goes up with each cancellation of running executions
	mu      sync.Mutex               // guards what follows
	live    *runContext              // the first of those that somebody waits for, or that serve an exchange
	streams map[*runContext]struct{} // whose answers are streams, which go on without their keys
	changed chan struct{}            // closed when open or record changes; nil while nobody waits
}

func (p *partition) init(w *Worker, number int) {
	p.worker, p.number, p.table.Queue = w, number, w.queue
	p.locks.part, p.locks.machine = p, remote.Machine{Host: &p.locks, TTL: w.settings.TTL}
	p.table.Close()
}

// track registers c to be cancelled with the partition's ownership. It reports
// false if that has already happened.
func (p *partition) track(c *runContext) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cancels.Load() != c.cancels {
		return false
	}
	if !c.tracked {
		c.tracked, c.next = true, p.live
		if p.live != nil {
			p.live.prev = c
		}
		p.live = c
	}
	return true
}

// untrack undoes track.
func (p *partition) untrack(c *runContext) {
	p.mu.Lock()
	p.untrackLocked(c)
	p.mu.Unlock()
}

func (p *partition) untrackLocked(c *runContext) {
	switch {
	case !c.tracked:
		return
	case c.prev != nil:
		c.prev.next = c.next
	default:
		p.live = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	}
	c.tracked, c.prev, c.next = false, nil, nil
}

// cancelRunning cancels the contexts of all executions admitted so far.
func (p *partition) cancelRunning() {
	p.mu.Lock()
	p.cancels.Add(1)
	var lost []*runContext
	for p.live != nil {
		lost = append(lost, p.live)
		p.untrackLocked(p.live)
	}
	p.mu.Unlock()
	for _, c := range lost {
		c.cancel(ErrOwnershipLost)
	}
	p.endStreams()
}

// free frees key when an execution and those that ran within it have ended. If it
// ran within another one itself, that goes on to hold key.
func (p *partition) free(key string, token int64, outer *runContext) {
	if outer != nil {
		outer.leave()
		return
	}
	p.unlock(key, token)
}

// unlock ends an execution, and tells the shell if the partition was moved
// away while it ran.
func (p *partition) unlock(key string, token int64) {
	if p.table.Unlock(key, token) {
		p.worker.shell.post(nil, handoff.Finished{Partition: p.number, Key: key, Token: token})
	}
}

// minted asks for another epoch if this one, of which token is, has few tokens left.
func (p *partition) minted(token int64) {
	if token&(1<<sequenceBits-1) >= sequenceLow {
		p.sequenceLow(token >> sequenceBits)
	}
}

// sequenceLow asks for the epoch after this one, once.
func (p *partition) sequenceLow(epoch int64) {
	if p.asked.Load() != epoch && p.asked.Swap(epoch) != epoch {
		p.worker.shell.post(nil, handoff.SequenceLow{Partition: p.number, Epoch: epoch})
	}
}

// checkSequence asks for a higher epoch where the table has given all tokens of
// the one that it has just got: nobody would be granted a key, and so nobody
// would ask.
func (p *partition) checkSequence() {
	if last, exhausted := p.table.Exhausted(); exhausted {
		p.worker.shell.post(nil, handoff.SequenceLow{Partition: p.number, Epoch: last >> sequenceBits})
	}
}

// announce wakes those who wait in awaitOwnership.
func (p *partition) announce() {
	p.mu.Lock()
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
	p.mu.Unlock()
}

func (p *partition) change() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.changed
}

// awaitOwnership waits for the partition to open. A call is one of
// this program: it waits until limit while no other live worker owns the
// partition. Any other is a request that can be sent elsewhere: it waits for
// AwaitTimeout where the partition is about to open here. It returns a *NotOwnerError or *UnownedError
// for key.
func (p *partition) awaitOwnership(ctx context.Context, key string, how asking, limit time.Time) error {
	w := p.worker
	if w.awaiting.Add(1) > int64(w.cfg.MaxAwaiting) {
		w.awaiting.Add(-1)
		return fmt.Errorf("%w for partition %d to arrive", ErrBusy, p.number)
	}
	defer w.awaiting.Add(-1)
	patience := time.Until(limit)
	if !how.call {
		patience = min(patience, w.cfg.AwaitTimeout)
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		changed := p.change()
		switch {
		case w.draining.Load():
			return p.elsewhere(key)
		case p.open.Load():
			return nil
		case how.call && p.owned():
			return p.elsewhere(key)
		case !how.call && !p.expected(how.epoch):
			return p.elsewhere(key)
		}
		select {
		case <-changed:
		case <-timeout.C:
			return p.elsewhere(key)
		case <-ctx.Done():
			if how.call {
				return fmt.Errorf("%w: %w", context.Cause(ctx), p.elsewhere(key))
			}
			return context.Cause(ctx)
		}
	}
}

// expected reports whether the partition can be expected to open here soon:
// the caller was sent here by an owner whose epoch we have not seen yet, or no
// living member owns it and the ring names us, or nobody yet.
func (p *partition) expected(epoch int64) bool {
	known := p.record.Load()
	if known != nil && epoch > known.Epoch {
		return true
	}
	view := p.worker.cfg.Members.View()
	target, ok := view.Owner(p.number)
	if ok && target.Name != p.worker.name {
		return false
	}
	if known == nil || known.Owner == "" {
		return true
	}
	_, alive := view.Find(known.Owner)
	return !alive || known.Owner == p.worker.Incarnation()
}

// owner returns the living worker, other than this one, that the partition's
// record names.
func (p *partition) owner() (record *handoff.Record, m ring.Member, ok bool) {
	record = p.record.Load()
	if record == nil || record.Owner == "" || record.Owner == p.worker.Incarnation() {
		return record, m, false
	}
	m, ok = p.worker.cfg.Members.View().Find(record.Owner)
	return record, m, ok
}

func (p *partition) owned() bool {
	_, _, owned := p.owner()
	return owned
}

// elsewhere returns the error that names the worker that owns key, or says what
// is waited for where none is known to.
func (p *partition) elsewhere(key string) error {
	record, m, owned := p.owner()
	if owned {
		return &NotOwnerError{Key: key, Partition: p.number, Worker: m.Name, Addr: m.Addr, Owner: record.Owner, Epoch: record.Epoch}
	}
	err := &UnownedError{Key: key, Partition: p.number}
	if record != nil && record.Owner != p.worker.Incarnation() {
		err.owner, err.epoch = record.Owner, record.Epoch
	}
	err.Wait, err.waiting = p.waiting(record)
	return err
}

// waiting says what has to happen before the partition, which nobody else is
// known to own, is served, and how long that takes, if it is known.
func (p *partition) waiting(record *handoff.Record) (wait time.Duration, what string) {
	w := p.worker
	if w.draining.Load() {
		return 0, "this worker is leaving"
	}
	if trouble := w.trouble.Load(); trouble != nil {
		return 0, fmt.Sprintf("this worker, %s, does not work: %v", w.name, *trouble)
	}
	target, ok := w.cfg.Members.View().Owner(p.number)
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
	wait, obstacle := w.outlook.Load().Claimable(record, w.instant(time.Now()).Mono)
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
