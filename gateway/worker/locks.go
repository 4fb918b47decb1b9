package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/internal/metrics"
	"github.com/keyway-go/keyway/ring/handoff"
)

// locks are the keys that this worker holds for members elsewhere: for Client.Hold and
// Client.DoAll of package router. A lock is an admission to its key, which lasts until
// its holder releases it or its lease ends, as this process's monotonic clock counts: the
// holder, which counts from before it asked, has ended by then. It is an entry of its
// partition's table and nothing else: it has no goroutine, timer or context. It is made
// by a call (locks_calls.go), ends by another one or by its lease (locks_expire.go), and
// goes along with its partition (locks_move.go). One whose lease is longer than what this
// worker can promise is written to the store as well (locks_written.go), and outlives it.
type locks struct {
	worker  *Worker
	count   atomic.Int64 // locks, and calls that wait for one: at most Config.MaxHolds
	held    atomic.Int64 // locks
	written atomic.Int64 // those of them that the store keeps
	events  [lockEvents]atomic.Int64
	waits   metrics.Latencies // of those who got their keys, until then
	sweeps  sweeps

	noting sync.Mutex // guards noted
	noted  string     // the incarnation that Config.OnHold was called with last
}

// lockState says whose a lock is.
type lockState uint8

const (
	lockLive   lockState = iota // its holder's, which names it by its id
	lockBlocks                  // nobody's: it keeps its key from others until its lease ends
	lockOfLife                  // likewise, and it is of a life of this worker that may have lost its session
)

// lock is a key that is held for a member elsewhere. There may be a million. A lock is its id and its token:
// where its holder's request is granted anew, that is another lock.
type lock struct {
	id      holds.ID
	key     string
	label   string // for people
	from    string // address of the member that asked for it
	token   int64
	call    uint64        // number of the request that has made it; 0 once another request has found it, or may have
	cancels uint64        // partition.cancels when the key was asked for, or when the lock has come
	lease   time.Duration // from each renewal on
	expires time.Duration // since the worker's start
	due     time.Duration // when it is looked at next, since then; not after expires
	place   int32         // in lockTable.order
	state   lockState
	shared  bool          // it holds its key together with other shared locks
	found   bool          // by another call than the one that has made it, be it of the same request
	end     lockEvent     // with which it ends when the store does not keep it any more; lockGranted: it does not
	stored  time.Duration // lease with which the store keeps it; 0 if it does not
	write   *lockWrite    // the change of that under way; nil for none
	timing  *timing       // with its span; nil for none
}

// lockTable is the locks of one partition. While the partition is not served they are
// frozen: nobody is granted one, and none is renewed or released.
type lockTable struct {
	mu     sync.Mutex             // guards what follows, and the locks; locked before the partition's localmutex.Table is
	open   bool                   // the partition is served, as its localmutex.Table knows too
	byID   map[holds.ID]*lock     // those that are live
	order  []*lock                // a heap by due
	big    bool                   // both have had more than keepLocks
	size   int                    // of the text of all, at most
	ofLife int                    // that are lockOfLife
	done   []released             // lately, the last of them at the end
	forget time.Duration          // when done is of no use any more
	waits  map[holds.ID]*lockWait // for locks
	next   atomic.Int64           // order[0].due, 0 if there is none
}

// released is a lock whose holder has released it.
type released struct {
	id   holds.ID
	call uint64
}

// rememberLocked notes the release of a lock for a TTL, unless maxReleased others come.
func (p *partition) rememberLocked(l *lock) {
	t := &p.locks
	t.done = append(t.done[max(0, len(t.done)+1-maxReleased):], released{l.id, l.call})
	t.forget = p.worker.now() + p.worker.settings.TTL
	t.noteNext()
	p.worker.locks.sweeps.wantBy(p.worker, t.forget)
}

// wasReleased returns the index of a release in t.done, -1 if none of that id is remembered.
func (t *lockTable) wasReleased(id holds.ID) int {
	return slices.IndexFunc(t.done, func(r released) bool { return r.id == id })
}

// fits reports whether the text of locks may become that much longer.
func (t *lockTable) fits(size int) bool { return t.size+size+maxReleased*releasedSize <= maxLockText }

// tooManyLocked returns the error of a call whose lock could not move with the partition.
func (p *partition) tooManyLocked() error {
	return fmt.Errorf("%w: %d keys of partition %d are held for other members, as many as can move with it", ErrBusy, len(p.locks.order), p.number)
}

// lockWait is a call that waits for its key.
type lockWait struct {
	lock    *lock // that it is to become
	giveUp  func()
	settled chan struct{} // closed when the wait is over
}

const (
	keepLocks   = 8       // for which a table without locks keeps room
	maxLockText = 1 << 20 // bytes of the text with which the locks of a partition travel
	maxReleased = 256     // locks of a partition whose release is remembered
)

// waiting returns how many calls wait for their keys.
func (ls *locks) waiting() int64 {
	held := ls.held.Load() // before those that wait meanwhile
	return max(ls.count.Load()-held, 0)
}

// vouches reports whether the holder of l may be told that it holds its key: the store
// keeps it, or nothing that the partition had admitted by then was cancelled. The lease that
// vouches for that has to be read before, since it may be that of the worker's next incarnation.
func (p *partition) vouches(l *lock) bool {
	return l.state == lockLive && l.end == lockGranted && (l.stored > 0 || l.cancels == p.cancels.Load())
}

// findLocked returns the live lock with that id, nil if there is none. One for which nobody vouches any more is nobody's
// from now on, so that it takes no other one's place.
func (p *partition) findLocked(id holds.ID) *lock {
	l := p.locks.byID[id]
	if l == nil || l.stored > 0 || l.write != nil || l.cancels == p.cancels.Load() {
		return l
	}
	p.loseLocked(l)
	return nil
}

// loseLocked leaves nothing of a live lock but what keeps its key from others.
func (p *partition) loseLocked(l *lock) {
	delete(p.locks.byID, l.id)
	l.state = lockOfLife
	p.locks.ofLife++
	p.worker.locks.tell(l, lockLost)
	l.timing.endLock(lockLost)
}

// promise returns how much longer this worker can vouch for those locks of which
// [partition.vouches], called after that, says that they go on.
func (ls *locks) promise() holds.Promise {
	now, lease := ls.worker.instant(time.Now()), ls.worker.lease.Load()
	return holds.Promise{Cancel: lease.Cancel.Left(now), Surrender: lease.Surrender.Left(now)}
}

// note tells Config.OnHold of the incarnation, once.
func (ls *locks) note() error {
	cfg, id := &ls.worker.cfg, ls.worker.Incarnation()
	ls.noting.Lock()
	defer ls.noting.Unlock()
	if ls.noted == id {
		return nil
	}
	switch {
	case cfg.OnHold != nil:
		if err := cfg.OnHold(id); err != nil {
			return fmt.Errorf("%w: writing down that keys are held for other members: %w", ErrUnavailable, err)
		}
	case cfg.OnIncarnation != nil:
		return errors.New("worker: keys are not held for other members: Config.OnIncarnation is set, and Config.OnHold is not")
	}
	ls.noted = id
	return nil
}

// grantLocked makes l a lock, whose key was admitted to with that token.
func (p *partition) grantLocked(l *lock, token int64, cancels uint64) {
	l.token, l.cancels, l.expires = token, cancels, p.worker.now()+l.lease
	l.timing.begin(context.Background(), p, l.key, token)
	p.addLocked(l, lockGranted)
}

// addLocked adds a lock, whose key is held with its token.
func (p *partition) addLocked(l *lock, event lockEvent) {
	ls, t := &p.worker.locks, &p.locks
	if t.byID == nil {
		t.byID = make(map[holds.ID]*lock)
	}
	if l.state == lockLive {
		t.byID[l.id] = l
	}
	t.size += l.size()
	l.due = l.expires
	t.push(l)
	t.big = t.big || len(t.order) > keepLocks
	ls.held.Add(1)
	ls.written.Add(int64(number(l.stored > 0)))
	ls.tell(l, event)
	ls.sweeps.wantBy(p.worker, l.due)
}

// removeLocked removes a lock, and frees its key.
func (p *partition) removeLocked(l *lock, event lockEvent) {
	ls, t := &p.worker.locks, &p.locks
	if l.state == lockLive {
		delete(t.byID, l.id)
	}
	t.size -= l.size()
	if t.remove(l); t.big && len(t.order) == 0 {
		t.byID, t.order, t.big = nil, nil, false
	}
	ls.held.Add(-1)
	ls.written.Add(-int64(number(l.stored > 0)))
	ls.count.Add(-1)
	ls.tell(l, event)
	l.timing.endLock(event)
	p.table.Unlock(l.key, l.token) // that a Close has listed it the shell is told by LocksEnded
	if l.state == lockOfLife {
		t.ofLife--
	}
	if !t.open && len(t.order) == 0 || l.state == lockOfLife && t.ofLife == 0 {
		p.worker.shell.post(nil, handoff.LocksEnded{Partition: p.number})
	}
}

// renewLock lets a lock go on, from now on for its lease.
func (p *partition) renewLock(id holds.ID, now time.Duration) holds.State {
	t := &p.locks
	t.mu.Lock()
	defer t.mu.Unlock()
	l := p.findLocked(id)
	switch {
	case !t.open:
		return holds.Elsewhere
	case l == nil, !p.vouches(l):
		return holds.Gone
	}
	l.expires = max(l.expires, now+l.lease)
	p.worker.locks.tell(l, lockRenewed)
	return holds.Held
}

// releaseLock ends a lock, or the wait for it. A lock that the store keeps is released
// when removal is made. A worker that is not sure of its own session, which was looked at before, ends none.
func (p *partition) releaseLock(id holds.ID, sure bool) (s holds.State, removal *lockWrite) {
	t := &p.locks
	t.mu.Lock()
	defer t.mu.Unlock()
	l, wait := p.findLocked(id), t.waits[id]
	if wait != nil {
		wait.giveUp()
	}
	switch {
	case !t.open, l != nil && !sure:
		return holds.Elsewhere, nil
	case l != nil && (p.vouches(l) || l.end == lockReleased):
		return holds.Held, p.endLocked(l, lockReleased)
	case l != nil:
		return holds.Gone, p.endLocked(l, lockLost)
	case wait != nil:
		p.rememberLocked(wait.lock)
	case t.wasReleased(id) < 0:
		return holds.Gone, nil
	}
	return holds.Held, nil
}

// holderOf returns the lock that holds a key with that token, the one with the longest rest
// of those that share it, and how many these are.
func (p *partition) holderOf(key string, token int64) (l lock, shared int, ok bool) {
	t := &p.locks
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, other := range t.order {
		if other.token != token || other.key != key {
			continue
		}
		if other.shared {
			shared++
		}
		if l.expires < other.expires {
			l, ok = *other, true
		}
	}
	return l, shared, ok
}
