package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/localmutex/locking"
	"github.com/keyway-go/keyway/ring"

	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// Clients that lock keys of the workers while these come, go and die.
const (
	lockClients = 2
	lockCallers = 8 // of each client
	lockKeys    = 8
)

// tenure is a lock, by the clock of the observer.
type tenure struct {
	key        int
	token      int64
	begin, end time.Duration
	lease      locking.Lease
	lost       bool // before it was unlocked
}

// idle is a time for which a key that somebody waited for was nobody's.
type idle struct {
	key        int
	begin, end time.Duration
}

// failedLock is a call that got no lock.
type failedLock struct {
	key        int
	begin, end time.Duration
	err        error
}

// lockJudge sees all locks, and judges.
type lockJudge struct {
	now func() time.Duration

	mu       sync.Mutex // guards what follows
	held     [lockKeys]*tenure
	token    [lockKeys]int64
	waiting  [lockKeys]int
	free     [lockKeys]time.Duration // since when the key is nobody's and waited for; 0 if that is not known
	ended    []*tenure
	idle     []idle
	failed   []failedLock
	unknown  int // unlocked, or not
	findings []string
	starved  []outage
}

// watch notes when the machine is so busy that this process does not run for half a second: locks may be lost
// then, as requests may fail.
func (j *lockJudge) watch(ctx context.Context) {
	const look, starving = 50 * time.Millisecond, 500 * time.Millisecond
	for last := j.now(); trial.Sleep(ctx, look); last = j.now() {
		if now := j.now(); now-last > starving {
			j.mu.Lock()
			j.starved = append(j.starved, outage{last, now})
			j.mu.Unlock()
		}
	}
}

// wait notes that a caller waits for a key, or no longer does.
func (j *lockJudge) wait(key, callers int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.waiting[key] += callers; j.waiting[key] == 0 {
		j.free[key] = 0
	}
}

// begin notes that a caller has a lock.
func (j *lockJudge) begin(key int, lease locking.Lease) *tenure {
	j.mu.Lock()
	defer j.mu.Unlock()
	t := &tenure{key: key, token: lease.Token(), begin: j.now(), lease: lease}
	holds := lease.Context().Err() == nil // it may have been lost before its caller came here
	if other := j.held[key]; holds && other != nil && other.lease.Context().Err() == nil {
		j.findings = append(j.findings, fmt.Sprintf("%.3fs lock-%d is held with token %d, and with %d", t.begin.Seconds(), key, other.token, t.token))
	}
	if holds && t.token <= j.token[key] {
		j.findings = append(j.findings, fmt.Sprintf("%.3fs lock-%d: token %d after %d", t.begin.Seconds(), key, t.token, j.token[key]))
	}
	if j.free[key] != 0 {
		j.idle = append(j.idle, idle{key, j.free[key], t.begin})
	}
	j.held[key], j.token[key], j.free[key] = t, max(t.token, j.token[key]), 0
	return t
}

// fail notes that a call that began then got no lock.
func (j *lockJudge) fail(key int, begin time.Duration, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failed = append(j.failed, failedLock{key, begin, j.now(), err})
}

// letGo notes that a lock is about to be unlocked, and so no longer its holder's.
func (j *lockJudge) letGo(t *tenure) {
	j.mu.Lock()
	defer j.mu.Unlock()
	t.end, t.lost = j.now(), t.lease.Context().Err() != nil && errors.Is(context.Cause(t.lease.Context()), keyway.ErrOwnershipLost)
	if j.held[t.key] == t {
		j.held[t.key] = nil
	}
}

// end notes what Unlock has said.
func (j *lockJudge) end(t *tenure, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	t.lost = t.lost || errors.Is(err, locking.ErrNotOwner)
	j.ended = append(j.ended, t)
	switch {
	case err != nil && !t.lost:
		j.unknown++
	case err == nil && j.token[t.key] == t.token && j.waiting[t.key] > 0:
		j.free[t.key] = j.now()
	}
}

// grantTime is how long a key that is free, and has an owner, may be kept from who waits for it.
const grantTime = 5 * time.Second

// violations returns what may not be. A lock may be lost only with its owner, and a call may fail or wait
// for a key that is nobody's only while it has none: within one of the outages, or a TTL later. So it is where the
// machine was too busy.
func (j *lockJudge) violations(outages []outage, ttl time.Duration) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	all, outages := j.findings, slices.Concat(outages, j.starved)
	within := func(begin, end time.Duration) bool {
		return slices.ContainsFunc(outages, func(o outage) bool { return o.begin <= end && begin <= o.end+ttl })
	}
	for _, f := range j.failed {
		if !within(f.begin, f.end) {
			all = append(all, fmt.Sprintf("%.3fs lock-%d, asked for since %.3fs: %v", f.end.Seconds(), f.key, f.begin.Seconds(), f.err))
		}
	}
	for _, t := range j.ended {
		if t.lost && !within(t.end-ttl, t.end) {
			all = append(all, fmt.Sprintf("%.3fs lock-%d with token %d, held since %.3fs, was lost though its owner was there", t.end.Seconds(), t.key, t.token, t.begin.Seconds()))
		}
	}
	for _, i := range j.idle {
		left := i.end - i.begin
		for _, o := range outages {
			left -= max(0, min(i.end, o.end+ttl)-max(i.begin, o.begin))
		}
		if left > grantTime {
			all = append(all, fmt.Sprintf("%.3fs lock-%d was free and waited for since %.3fs", i.end.Seconds(), i.key, i.begin.Seconds()))
		}
	}
	if len(j.ended) == 0 {
		all = append(all, "nothing was locked")
	}
	return all
}

func (j *lockJudge) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	lost, longest := 0, time.Duration(0)
	for _, t := range j.ended {
		if t.lost {
			lost++
		}
	}
	for _, i := range j.idle {
		longest = max(longest, i.end-i.begin)
	}
	return fmt.Sprintf("%d taken, %d lost, %d of which nobody knows whether they were unlocked, %d calls failed; longest time from an unlock to the next holder %v",
		len(j.ended), lost, j.unknown, len(j.failed), longest.Round(time.Millisecond))
}

// startLocks lets clients lock keys until stop is called.
func (s *stage) startLocks(ctx context.Context, seed uint64) (j *lockJudge, stop func(), err error) {
	j = &lockJudge{now: s.observer.Now}
	ctx, cancel := context.WithCancel(ctx)
	var callers sync.WaitGroup
	callers.Go(func() { j.watch(ctx) })
	var clients []*keyway.Client
	stop = func() {
		cancel()
		callers.Wait()
		for _, c := range clients {
			_ = c.Close()
		}
	}
	for i := range uint64(lockClients) {
		client, err := keyway.NewClient(ctx, keyway.ClientConfig{Join: []string{s.router.Gossip}, Settings: ring.Settings{TTL: s.cfg.TTL}})
		if err != nil {
			stop()
			return nil, nil, err
		}
		clients = append(clients, client)
		for k := range uint64(lockCallers) {
			rng := rand.New(rand.NewPCG(seed, 1<<33+i<<16+k))
			callers.Go(func() { j.call(ctx, client, rng, s.cfg.TTL) })
		}
	}
	return j, stop, nil
}

// call is a caller. He holds most locks for a moment, and some over several moves.
func (j *lockJudge) call(ctx context.Context, client *keyway.Client, rng *rand.Rand, ttl time.Duration) {
	for ctx.Err() == nil {
		key := rng.IntN(lockKeys)
		j.wait(key, 1)
		asked := j.now()
		lease, err := client.Lock(ctx, fmt.Sprint("lock-", key), locking.TTL(time.Duration(rng.IntN(3))*ttl/2))
		if err != nil {
			j.wait(key, -1)
			if ctx.Err() == nil {
				j.fail(key, asked, err)
			}
			trial.Sleep(ctx, trial.UpTo(rng, ttl/10))
			continue
		}
		t := j.begin(key, lease)
		j.wait(key, -1)
		length := trial.UpTo(rng, 20*time.Millisecond)
		if rng.IntN(100) == 0 {
			length = trial.UpTo(rng, 2*ttl)
		}
		trial.Sleep(lease.Context(), length)
		j.letGo(t)
		unlocking, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*ttl)
		j.end(t, lease.Unlock(unlocking))
		cancel()
	}
}
