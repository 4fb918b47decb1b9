package worker

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/gateway"
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

// tokenEpoch returns the epoch of the ownership under which a token was minted.
func tokenEpoch(token int64) int64 { return token >> sequenceBits }

// partition is the request path's side of one partition. The shell, which
// drives the ownership machine, opens and closes it.
type partition struct {
	keys   *keys
	number int
	table  localmutex.Table
	open   atomic.Bool                    // what the table is; for those who wait
	record atomic.Pointer[handoff.Record] // the last one known; for refused requests
	asked  atomic.Int64                   // the epoch whose successor was asked for
	term   atomic.Uint64                  // goes up each time the partition is given away

	cancels atomic.Uint64            // goes up with each cancellation of running executions
	mu      sync.Mutex               // guards what follows
	live    *runContext              // the first of those that somebody waits for, or that serve an exchange
	streams map[*runContext]struct{} // whose answers are streams, which go on without their keys
	changed chan struct{}            // closed when open or record changes; nil while nobody waits
}

func (p *partition) init(k *keys, number int) {
	p.keys, p.number, p.table.Queue = k, number, k.queue
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
		c.cancel(gateway.ErrOwnershipLost)
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
		p.keys.Owner.Post(handoff.Finished{Partition: p.number, Key: key, Token: token})
	}
}

// minted asks for another epoch if this one, of which token is, has few tokens left.
func (p *partition) minted(token int64) {
	if token&(1<<sequenceBits-1) >= sequenceLow {
		p.sequenceLow(token >> sequenceBits)
	}
}

// reserve reserves up to n tokens above those minted: reserved of them, from first on.
func (p *partition) reserve(n int) (first int64, reserved int) {
	if first, reserved = p.table.Reserve(n); reserved > 0 {
		p.minted(first + int64(reserved) - 1)
	}
	return first, reserved
}

// tokensOf returns the first token of an epoch, and the first one above all of it.
func tokensOf(epoch int64) (first, limit int64) {
	return epoch<<sequenceBits + 1, (epoch + 1) << sequenceBits
}

// at returns the time that was d after the worker's start.
func (p *partition) at(d time.Duration) time.Time { return p.keys.base.Add(d) }

// worker returns the worker's name.
func (p *partition) worker() string { return p.keys.cfg.Name }

// sequenceLow asks for the epoch after this one, once.
func (p *partition) sequenceLow(epoch int64) {
	if p.asked.Load() != epoch && p.asked.Swap(epoch) != epoch {
		p.keys.Owner.Post(handoff.SequenceLow{Partition: p.number, Epoch: epoch})
	}
}

// checkSequence asks for a higher epoch where the table has given all tokens of
// the one that it has just got: nobody would be granted a key, and so nobody
// would ask.
func (p *partition) checkSequence() {
	if last, exhausted := p.table.Exhausted(); exhausted {
		p.keys.Owner.Post(handoff.SequenceLow{Partition: p.number, Epoch: last >> sequenceBits})
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
	k := p.keys
	if k.awaiting.Add(1) > int64(k.cfg.MaxAwaiting) {
		k.awaiting.Add(-1)
		return fmt.Errorf("%w for partition %d to arrive", gateway.ErrBusy, p.number)
	}
	defer k.awaiting.Add(-1)
	patience := time.Until(limit)
	if !how.call {
		patience = min(patience, k.cfg.AwaitTimeout)
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		changed := p.change()
		switch {
		case k.draining.Load():
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
	view := p.keys.cfg.View()
	target, ok := view.Owner(p.number)
	if ok && target.Name != p.keys.cfg.Name {
		return false
	}
	if known == nil || known.Owner == "" {
		return true
	}
	_, alive := view.Find(known.Owner)
	return !alive || known.Owner == p.keys.Incarnation()
}

// owner returns the living worker, other than this one, that the partition's
// record names.
func (p *partition) owner() (record *handoff.Record, m ring.Member, ok bool) {
	record = p.record.Load()
	if record == nil || record.Owner == "" || record.Owner == p.keys.Incarnation() {
		return record, m, false
	}
	m, ok = p.keys.cfg.View().Find(record.Owner)
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
		return &gateway.NotOwnerError{Key: key, Partition: p.number, Worker: m.Name, Addr: m.Addr, Owner: record.Owner, Epoch: record.Epoch}
	}
	err := &gateway.UnownedError{Key: key, Partition: p.number}
	if record != nil && record.Owner != p.keys.Incarnation() {
		err.Owner, err.Epoch = record.Owner, record.Epoch
	}
	err.Wait, err.WaitsFor = p.keys.Owner.Waiting(p.number, record)
	return err
}
