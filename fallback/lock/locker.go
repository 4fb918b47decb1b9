package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/internal/holding"
	"github.com/keyway-go/keyway/internal/keytable"
	"github.com/keyway-go/keyway/internal/wake"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// Locker takes locks in Redis for the goroutines of one process. It is safe for concurrent use.
// Make one per Redis and set of options, and share it. It is open until Close ends its context.
type Locker struct {
	cfg    Config // with defaults
	server lockServer
	hubs   *lockHubs // nil if waiters try from time to time, since no message tells them of releases
	counts counts
	turns  keytable.Table        // by key: those of the callers of this process
	locks  holding.Set           // that callers of this process hold; locked before mu
	passed map[string]*heldClaim // by key: that the next caller of this process takes over; guarded as locks are

	ctx  context.Context // ends with Close
	stop func()          // ends it; mu is locked then, so that no call begins after that

	mu     sync.Mutex
	active int        // calls and goroutines that Close waits for
	ended  *sync.Cond // active is 0
}

// New makes a Locker over a client. The caller must close the client, after the Locker. The client
// should have ContextTimeoutEnabled, as clients of NewClient have. New does no network I/O. The
// server must be Redis 6.2 or later, and 7.0 for a cluster. A [redis.Ring] is refused: its processes
// would use different servers for one lock when some of them cannot reach the first.
func New(client redis.UniversalClient, cfg Config) (*Locker, error) {
	cfg, err := cfg.withDefaults(client)
	if err != nil {
		return nil, err
	}
	l := newLocker(cfg)
	l.server = newLockNode(l, client)
	if !cfg.Poll {
		cluster, _ := client.(*redis.ClusterClient)
		l.hubs = &lockHubs{l: l, client: client, cluster: cluster, hubs: map[string]*lockHub{}}
	}
	return l, nil
}

// newLocker returns a Locker without its server.
func newLocker(cfg Config) *Locker {
	l := &Locker{cfg: cfg, passed: map[string]*heldClaim{}}
	l.ctx, l.stop = context.WithCancel(context.Background())
	l.locks.Init(cfg.policy(), cfg.Clock)
	l.turns.Queue = &keytable.Queue{PerKey: math.MaxInt, Total: math.MaxInt}
	l.ended = sync.NewCond(&l.mu)
	return l
}

// Close ends every wait with ErrClosed and the contexts of held locks with the same cause. It waits
// for everything that runs: about as long as one call to Redis may take. It releases no locks,
// since work under them may continue: they end with their TTL unless they are unlocked.
func (l *Locker) Close() error {
	l.mu.Lock()
	l.stop()
	l.mu.Unlock()
	l.turns.Close()
	l.locks.Lock()
	l.locks.CloseLocked()
	l.locks.Unlock()
	l.mu.Lock()
	for l.active > 0 {
		l.ended.Wait()
	}
	l.mu.Unlock()
	return nil
}

// enter begins something that Close waits for. It fails once closed.
func (l *Locker) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return false
	}
	l.active++
	return true
}

func (l *Locker) leaveCall() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active--
	if l.active == 0 {
		l.ended.Broadcast()
	}
}

// spawn runs f in a goroutine that Close waits for.
func (l *Locker) spawn(f func()) {
	l.mu.Lock()
	l.active++
	l.mu.Unlock()
	go func() {
		defer l.leaveCall()
		f()
	}()
}

// TryLock takes the lock of a key if it is free, or else returns locking.ErrLocked. A try whose
// answer is lost is repeated; after three failures the last error is returned. opts are as for
// Lock.
func (l *Locker) TryLock(ctx context.Context, key string, opts ...locking.Option) (*Lock, error) {
	return l.acquireNames(ctx, []string{key}, false, false, opts)
}

// Lock takes the lock of a key. It waits until ctx ends, and then returns ctx's cause. If Redis
// does not answer for a TTL, or at the end of the wait, it returns the last error. If ctx descends
// from a held lock's Context with the same key, Lock is reentrant: it counts up that lock.
//
// The held lock's Context descends from ctx; Config.MaxWait bounds the
// wait alone.
//
// The options TTL, Wait and Label of package locking replace those of the Config for this call;
// Margin and RenewEvery change in proportion to the TTL. A reentrant call has no options of its
// own.
func (l *Locker) Lock(ctx context.Context, key string, opts ...locking.Option) (*Lock, error) {
	return l.acquireNames(ctx, []string{key}, false, true, opts)
}

// TryRLock takes the lock of a key for reading, shared with other readers, or returns
// locking.ErrLocked if a writer holds it or waits for it.
func (l *Locker) TryRLock(ctx context.Context, key string, opts ...locking.Option) (*Lock, error) {
	return l.acquireNames(ctx, []string{key}, true, false, opts)
}

// RLock takes the lock of a key for reading, as Lock does for writing. A waiting writer keeps out
// readers that come later.
func (l *Locker) RLock(ctx context.Context, key string, opts ...locking.Option) (*Lock, error) {
	return l.acquireNames(ctx, []string{key}, true, true, opts)
}

// TryLockAll takes the locks of several keys if all are free, and otherwise returns
// locking.ErrLocked. See LockAll.
func (l *Locker) TryLockAll(ctx context.Context, keys []string, opts ...locking.Option) (*Lock, error) {
	return l.acquireNames(ctx, distinct(keys), false, false, opts)
}

// LockAll takes the locks of several keys in one step, all or none, so callers with overlapping
// sets cannot deadlock. It also excludes callers that lock one of the keys alone. Order and
// repetitions do not matter. The options are those of Lock, for all keys together.
//
// In a cluster all keys must be in one slot. Redis derives the slot from the part in braces: with a
// Prefix like "{orders}:" all keys of a Locker are in one.
func (l *Locker) LockAll(ctx context.Context, keys []string, opts ...locking.Option) (*Lock, error) {
	return l.acquireNames(ctx, distinct(keys), false, true, opts)
}

// acquireNames is every way to acquire: names are sorted and distinct.
func (l *Locker) acquireNames(ctx context.Context, names []string, read, wait bool, opts []locking.Option) (*Lock, error) {
	began := time.Now()
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: no key to lock", errConfig)
	}
	o, err := l.options(opts)
	if err != nil {
		return nil, fmt.Errorf("lock: locking %q: %w", names, err)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if k, err := l.reenter(ctx, names, read); k != nil || err != nil {
		return k, err
	}
	if !l.enter() {
		return nil, ErrClosed
	}
	defer l.leaveCall()
	l.counts.asking.Add(1)
	defer l.counts.asking.Add(-1)
	w := want{ask: ask{names, read, wait, o}, ctx: ctx, parent: ctx, began: began}
	if wait && o.Wait > 0 {
		var cancel context.CancelFunc
		w.ctx, cancel = context.WithTimeoutCause(ctx, o.Wait, fmt.Errorf("%w: %q, after %v", locking.ErrLocked, names, o.Wait))
		defer cancel()
	}
	var k *Lock
	if w.plain(l.cfg.FIFO) {
		k, err = l.queue(w)
	} else {
		k, err = l.contend(w, 0)
	}
	if err != nil {
		l.emit(ctx, refusalBy(ctx, err), w.ask, err, slog.Duration("wait", time.Since(began)))
		return nil, err
	}
	return k, nil
}

// want is a caller that asks for a lock. It does not change.
type want struct {
	ask
	ctx    context.Context // ends the wait
	parent context.Context // of the held lock's context
	began  time.Time
}

// ask is what a caller asks for.
type ask struct {
	names []string // sorted, each once
	read  bool
	waits bool            // for the locks to be free
	opts  locking.Options // with defaults
}

// plain says whether it is one lock, exclusively and in any order. Callers of one process queue up
// for it, and one of them contends in Redis.
func (a *ask) plain(fifo bool) bool { return !a.read && !fifo && len(a.names) == 1 }

// contend takes locks in Redis, or returns an error after which nothing of the claim stays there, and another caller of this
// process has its turn.
func (l *Locker) contend(w want, turn int64) (_ *Lock, err error) {
	defer func() {
		if err != nil {
			l.next(w.names[0], turn)
		}
	}()
	ctx, c := w.ctx, l.claim(w.ask)
	bell := &lockBell{hubs: l.hubs, locks: c.locks}
	defer bell.close()
	failures, failing := 0, time.Now() // since when no try was answered
	silence := errLockTimeout          // why the last try has no answer, nil if it has one
	for try := 0; ; try++ {
		sent := l.locks.Now()
		g, err := l.server.acquire(ctx, c, try == 0)
		switch {
		case ctx.Err() != nil: // a done context always loses, even against a grant
			l.abandon(c, g.token > 0)
			return nil, w.ended(context.Cause(ctx), silence)
		case err == nil && g.token > 0:
			granted := holder.New(&l.locks.Policy, sent, c.granted(g.token))
			if granted.Left(l.locks.Now()) > 0 {
				k := l.hold(w, c, turn, granted)
				l.acquired(w, k, acquired)
				return k, nil
			}
			err = fmt.Errorf("the answer arrived after the lock had expired: %w", errLockTimeout)
		case err == nil && !c.waits:
			l.abandon(c, false)
			return nil, fmt.Errorf("%w: %q", locking.ErrLocked, c.names)
		}
		pause := l.pause(g.left)
		if err == nil {
			failing, failures, silence = time.Now(), 0, nil
			if bell.C == nil {
				l.emit(ctx, waited, w.ask, nil, slog.Duration("wait", time.Since(w.began)))
				bell.listen(c.owner)
			}
		} else {
			failures++
			silence = err
			if !passing(err) || time.Since(failing) > l.cfg.TTL || !c.waits && (failures == 3 || errors.Is(err, ErrNoQuorum)) {
				l.abandon(c, false)
				return nil, fmt.Errorf("lock: locking %q: %w", c.names, err)
			}
			if pause = l.cfg.backOff(failures); failures == 1 {
				continue // a lost answer: what matters is that the next try is soon
			}
		}
		if err := l.wait(ctx, bell, pause); err != nil {
			l.abandon(c, false)
			return nil, w.ended(err, silence)
		}
	}
}

// ended returns the error of a wait that err has ended. At the end of its bound the lock is known to be locked unless the
// last try failed, with silence.
func (w *want) ended(err, silence error) error {
	if silence != nil && w.parent.Err() == nil && errors.Is(err, locking.ErrLocked) {
		return fmt.Errorf("lock: locking %q: %w", w.names, silence)
	}
	return err
}

// wait returns nil when it is time for the next try.
func (l *Locker) wait(ctx context.Context, bell *lockBell, pause time.Duration) error {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-bell.C:
	case <-t.C:
		bell.follow()
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.ctx.Done():
		return ErrClosed
	}
	return nil
}

// pause is how long a waiter waits at most when the lock may take that long.
func (l *Locker) pause(left time.Duration) time.Duration {
	if l.hubs == nil {
		return l.cfg.PollEvery/2 + rand.N(l.cfg.PollEvery/2+1)
	}
	left = cmp.Or(max(left, 0), lockLongestWait) // another program's lock may have no end
	return min(left+time.Millisecond+rand.N(time.Millisecond), lockLongestWait/2+rand.N(2*lockLongestWait/5))
}

// backOff is how long to wait after so many failed calls in a row.
func (cfg *Config) backOff(failures int) time.Duration {
	longest := min(cfg.TTL/10, 500*time.Millisecond)
	d := min(5*time.Millisecond<<min(failures, 10), longest)
	return d/2 + rand.N(d/2+1)
}

// abandon takes a claim out of Redis in the background, if it may be there.
func (l *Locker) abandon(c *claim, granted bool) {
	if !granted && !c.queued.Load() && !c.unsettled.Load() {
		return
	}
	until := time.Now().Add(max(c.opts.TTL, l.cfg.TTL))
	l.spawn(func() { _, _ = l.repeatRelease(l.server, c, until) })
}

// repeatRelease releases a claim, and repeats it until an answer comes, the time is over or the Locker is closed. It
// reports whether the claim was held, or what failed last.
func (l *Locker) repeatRelease(s lockServer, c *claim, until time.Time) (held bool, err error) {
	for failures := 1; ; failures++ {
		// Impatient at first: the answer may be lost, and repeating is harmless.
		patience := min(100*time.Millisecond<<min(failures, 10), l.cfg.Timeout)
		call, cancel := context.WithTimeoutCause(context.Background(), patience, errLockTimeout)
		f, err := s.release(call, c)
		cancel()
		pause := l.cfg.backOff(failures)
		if err == nil || !passing(err) || time.Now().Add(pause).After(until) || !wake.Sleep(pause, l.ctx.Done()) {
			return f.freed, err
		}
	}
}

// State is who has the lock of a key.
type State struct {
	Held    bool
	Readers int           // who share it; 0 if it is held exclusively, or free
	Label   string        // of the holder, or of one of the readers; "" if it has none, or is another program
	Left    time.Duration // until the lock is free if nobody renews or unlocks it
	Token   int64         // the highest fencing token that a holder up to now can have; 0 if none is known
	Waiting int           // with FIFO: callers that wait, of all processes
}

// State says who has the lock of a key, in either mode.
func (l *Locker) State(ctx context.Context, key string) (State, error) {
	var s State
	err := l.repeat(ctx, func() (err error) {
		s, err = l.server.state(ctx, key)
		return err
	})
	if err != nil {
		return State{}, fmt.Errorf("lock: asking for the state of %q: %w", key, err)
	}
	return s, nil
}

// repeat makes a call that may be repeated, up to three times.
func (l *Locker) repeat(ctx context.Context, call func() error) error {
	for failures := 1; ; failures++ {
		err := call()
		if err == nil || failures == 3 || !passing(err) || l.wait(ctx, new(lockBell), l.cfg.backOff(failures)) != nil {
			return err
		}
	}
}
