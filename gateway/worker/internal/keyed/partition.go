package keyed

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/appstate"
	"github.com/keyway-go/keyway/internal/handoff"
	"github.com/keyway-go/keyway/internal/keytable"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/wake"
	"github.com/keyway-go/keyway/ring"
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

// Partition is the request path's side of one partition. The shell, which drives the ownership
// machine, opens and closes it. mu guards the contexts that can be cancelled; Table
// has a lock of its own.
type Partition struct {
	keys   *Keys
	Number int
	Table  keytable.Table
	Open   atomic.Bool                    // what the table is; for those who wait
	Record atomic.Pointer[records.Record] // the last one known; for refused requests
	asked  atomic.Int64                   // the epoch whose successor was asked for
	Term   atomic.Uint64                  // goes up each time the partition is given away

	changed wake.Round            // ends when Open or Record changes
	Cancels atomic.Uint64         // goes up with each cancellation of running executions
	mu      sync.Mutex            // guards what follows
	live    *Context              // the first context that is waited for, or that serves an exchange
	streams map[*Context]struct{} // whose answers are streams that continue without their keys
}

func (p *Partition) init(k *Keys, number int) {
	p.keys, p.Number, p.Table.Queue = k, number, k.queue
	p.Table.Close()
}

// track registers c to be cancelled with the partition's ownership. It reports
// false if that has already happened.
func (p *Partition) track(c *Context) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Cancels.Load() != c.cancels {
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

// untrackLocked undoes track.
func (p *Partition) untrackLocked(c *Context) {
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

// CancelRunning cancels the contexts of all executions admitted so far.
func (p *Partition) CancelRunning() {
	p.mu.Lock()
	p.Cancels.Add(1)
	var lost []*Context
	for p.live != nil {
		lost = append(lost, p.live)
		p.untrackLocked(p.live)
	}
	p.mu.Unlock()
	for _, c := range lost {
		c.Cancel(gateway.ErrOwnershipLost)
	}
	p.EndStreams()
}

// freeKey frees key when an execution and its nested executions have ended. If the execution is itself
// nested, the outer one continues to hold key.
func (p *Partition) freeKey(key string, token int64, outer *Context) {
	if outer != nil {
		outer.leaveNested()
		return
	}
	p.Unlock(key, token)
}

// Unlock ends an execution, and tells the shell if the partition was moved
// away while it ran.
func (p *Partition) Unlock(key string, token int64) {
	if p.Table.Unlock(key, token) {
		p.keys.Owner.Post(handoff.Finished{Partition: p.Number, Key: key, Token: token})
	}
}

// minted asks for another epoch, once, if the epoch of token has few tokens left.
func (p *Partition) minted(token int64) {
	epoch := TokenEpoch(token)
	if token&(1<<sequenceBits-1) >= sequenceLow && p.asked.Load() != epoch && p.asked.Swap(epoch) != epoch {
		p.keys.Owner.Post(handoff.SequenceLow{Partition: p.Number, Epoch: epoch})
	}
}

// Reserve reserves up to n tokens above those minted: reserved of them, from first on.
func (p *Partition) Reserve(n int) (first int64, reserved int) {
	if first, reserved = p.Table.Reserve(n); reserved > 0 {
		p.minted(first + int64(reserved) - 1)
	}
	return first, reserved
}

// TokensOf returns the first token of an epoch, and the first one above all of it.
func TokensOf(epoch int64) (first, limit int64) {
	return epoch<<sequenceBits + 1, (epoch + 1) << sequenceBits
}

// At returns the time that was d after the worker's start.
func (p *Partition) At(d time.Duration) time.Time { return p.keys.base.Add(d) }

// Worker returns the worker's name.
func (p *Partition) Worker() string { return p.keys.cfg.Name }

// CheckSequence asks for a higher epoch if the table has used up all tokens of the epoch that it
// has just got. Without it no caller would be granted a key, and so no grant would ask.
func (p *Partition) CheckSequence() {
	if last, exhausted := p.Table.Exhausted(); exhausted {
		p.keys.Owner.Post(handoff.SequenceLow{Partition: p.Number, Epoch: TokenEpoch(last)})
	}
}

// Announce wakes the callers of AwaitOwnership.
func (p *Partition) Announce() { p.changed.End() }

// AwaitOwnership waits for the partition to open. A call is one of
// this program: it waits until limit while no other live worker owns the
// partition. Any other is a request that can be sent elsewhere: it waits for
// AwaitTimeout where the partition is about to open here. It returns a *NotOwnerError or *UnownedError
// for key.
func (p *Partition) AwaitOwnership(ctx context.Context, key string, how Asking, limit time.Time) error {
	k := p.keys
	if k.Awaiting.Add(1) > int64(k.cfg.MaxAwaiting) {
		k.Awaiting.Add(-1)
		return fmt.Errorf("%w for partition %d to arrive", gateway.ErrBusy, p.Number)
	}
	defer k.Awaiting.Add(-1)
	patience := time.Until(limit)
	if !how.Call {
		patience = min(patience, k.cfg.AwaitTimeout)
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		changed := p.changed.Over()
		switch {
		case k.Draining.Load():
			return p.Elsewhere(key)
		case p.Open.Load():
			return nil
		case how.Call && p.owned():
			return p.Elsewhere(key)
		case !how.Call && !p.expected(how.Epoch):
			return p.Elsewhere(key)
		}
		select {
		case <-changed:
		case <-timeout.C:
			return p.Elsewhere(key)
		case <-ctx.Done():
			if how.Call {
				return fmt.Errorf("%w: %w", context.Cause(ctx), p.Elsewhere(key))
			}
			return context.Cause(ctx)
		}
	}
}

// expected reports whether the partition can be expected to open here soon. It can if an owner with
// an unknown, newer epoch sent the caller here. It also can if no living member owns it and the
// ring names this worker or none.
func (p *Partition) expected(epoch int64) bool {
	known := p.Record.Load()
	if known != nil && epoch > known.Epoch {
		return true
	}
	view := p.keys.cfg.View()
	target, ok := view.Owner(p.Number)
	if ok && target.Name != p.keys.cfg.Name {
		return false
	}
	if known == nil || known.Owner == "" {
		return true
	}
	_, alive := view.Find(known.Owner)
	return !alive || known.Owner == p.keys.Incarnation()
}

// Owner returns the living worker, other than this one, that the partition's
// record names.
func (p *Partition) Owner() (record *records.Record, m ring.Member, ok bool) {
	record = p.Record.Load()
	if record == nil || record.Owner == "" || record.Owner == p.keys.Incarnation() {
		return record, m, false
	}
	m, ok = p.keys.cfg.View().Find(record.Owner)
	return record, m, ok
}

func (p *Partition) owned() bool {
	_, _, owned := p.Owner()
	return owned
}

// Elsewhere returns the error that names the worker that owns key, or says what
// is waited for where none is known to.
func (p *Partition) Elsewhere(key string) error {
	record, m, owned := p.Owner()
	if owned {
		return &gateway.NotOwnerError{Key: key, Partition: p.Number, Worker: m.Name, Addr: m.Addr, Owner: record.Owner, Epoch: record.Epoch}
	}
	err := &gateway.UnownedError{Key: key, Partition: p.Number}
	if record != nil && record.Owner != p.keys.Incarnation() {
		err.Owner, err.Epoch = record.Owner, record.Epoch
	}
	err.Wait, err.WaitsFor = p.keys.Owner.Waiting(p.Number, record)
	return err
}

// overdue adds the contexts of executions that must be cancelled to list, and why.
func (p *Partition) overdue(now time.Time, list map[*Context]error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	since := now.Sub(p.keys.base)
	for c := p.live; c != nil; c = c.next {
		switch {
		case c.timeout != 0 && since >= c.began+c.timeout:
			list[c] = gateway.ErrTimeout
		case c.client == nil:
		case c.left != 0 && since-c.left >= p.keys.cfg.AbandonedTimeout:
			list[c] = errAbandoned
		case c.left == 0 && c.client.Err() != nil:
			c.left = since
		}
	}
}

// EndStreams ends the streams of a partition that is given away.
func (p *Partition) EndStreams() {
	p.mu.Lock()
	ended := p.streams
	p.streams = nil
	aways := make([]func(), 0, len(ended))
	for c := range ended {
		if c.away != nil {
			aways = append(aways, c.away)
		} else {
			aways = append(aways, func() { c.Cancel(appstate.ErrStreamEnds) })
		}
	}
	p.mu.Unlock()
	for _, away := range aways {
		away()
	}
}

// sampleEvery is of how many executions that need not wait one is looked at: to look costs
// about as much as a call of Worker.Do. It is a prime, so that keys that take turns in a
// partition are looked at in turn.
const sampleEvery = 127

func (p *Partition) sampled(token int64) bool {
	return uint32(token+int64(p.Number))%sampleEvery == 0
}

// Running returns what is known of the execution with that token: whether its client has left, how long it runs and may
// run; 0 for no bound.
func (p *Partition) Running(token int64) (gone bool, ran, limit time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := p.live; c != nil; c = c.next {
		if c.token == token {
			return c.left != 0, p.keys.Now() - c.began, c.timeout
		}
	}
	return false, 0, 0
}
