package lock

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/keyway-go/keyway/localmutex/locking"
)

// Errors of locks. Those that end the context of a held lock are found with
// context.Cause.
var (
	// ErrLocked means that the lock is held, or others are waiting for it.
	ErrLocked = locking.ErrLocked

	// ErrNotOwner means that the lock was no longer the caller's when it was to
	// be unlocked or renewed, so others may have held it meanwhile.
	ErrNotOwner = locking.ErrNotOwner

	// ErrUnlockUnknown means that no answer says whether the lock was released
	// while it was the caller's. It is free at the end of its TTL at the latest.
	ErrUnlockUnknown = locking.ErrUnlockUnknown

	// ErrExpired is the cause of a held lock's context when it could not
	// be renewed in time.
	ErrExpired = errors.New("lock: expired")

	// ErrLost is the cause of a held lock's context when the server says
	// that the lock is gone or another's.
	ErrLost = errors.New("lock: lost")

	// ErrForced is the cause of a held lock's context when ForceUnlock has
	// taken the lock away; the cause also says who asked for it, and why.
	ErrForced = errors.New("lock: released by force")

	// ErrUnlocked is the cause of a held lock's context after its Unlock.
	ErrUnlocked = errors.New("lock: unlocked")

	// ErrDetached is the cause of a held lock's context after its Detach.
	ErrDetached = errors.New("lock: detached")

	// ErrReplicas means that too few replicas have acknowledged the lock, so
	// that it was released again.
	ErrReplicas = errors.New("lock: too few replicas have it")

	// ErrOrder means that other Lockers of the same Prefix disagree about FIFO.
	ErrOrder = errors.New("lock: lockers of one prefix disagree about FIFO")

	// ErrNested means that the context already holds a lock with which the
	// caller would wait for itself.
	ErrNested = errors.New("lock: would wait for a lock that its own context holds")

	// ErrNoQuorum means that too few servers answered in time to say whether the
	// lock is free.
	ErrNoQuorum = errors.New("lock: no quorum")

	// ErrClosed means that the Locker is closed.
	ErrClosed = errors.New("lock: locker is closed")

	// ErrConfig means that a Locker cannot be made with these options.
	ErrConfig = errors.New("lock: bad configuration")
)

// Config configures a Locker. Clients that contend for the same locks
// must agree on Prefix and FIFO.
type Config struct {
	// Prefix of every Redis key. Default "keyway:lock:".
	Prefix string

	// NoPrefix makes the name of a lock the Redis key that is the lock, without
	// prefix and braces. Prefix is then that of the keys beside it alone. In a
	// cluster, a name with a closing brace needs a hash tag of its own.
	NoPrefix bool

	// Label says who holds the locks, to those who ask for the State of a key:
	// such as a host and a job. UTF-8, at most 128 bytes. Default: none.
	Label string

	// TTL after which a lock that is not renewed is free. Default 10s, at
	// least 10ms.
	TTL time.Duration

	// Margin by which a lock's context ends before its TTL does: it covers
	// clocks that run at different rates and late timers. Default TTL/20.
	Margin time.Duration

	// RenewEvery is the time between renewals. Default TTL/3.
	RenewEvery time.Duration

	// NoRenewal leaves renewing to Lock.Renew.
	NoRenewal bool

	// ContinueOnFailure leaves the context of a held lock alone when the lock
	// cannot be renewed, goes on trying, and takes the lock again if it is free.
	// Others may hold the lock meanwhile: only for work where a second run is
	// harmless or the resource checks fencing tokens. The context still ends when
	// another is seen to hold the lock. Default: the context ends before the lock
	// can be another's.
	ContinueOnFailure bool

	// Timeout of one call to Redis. Default TTL/4, at most 1s.
	Timeout time.Duration

	// Poll has waiters try at PollEvery, as they always do on a redis.Ring and for
	// a quorum. Default: they wait for a message on one subscription connection
	// shared by the Locker's waiters (in a cluster sharded, one per server), with
	// a try at the end of the lock's TTL or after a second behind it.
	Poll bool

	// PollEvery is the longest time between tries of a waiter that polls; each
	// is between half of it and all of it. Default 100ms, at most 1s.
	PollEvery time.Duration

	// MaxWait bounds the wait of Lock, RLock and LockAll, which then return
	// ErrLocked. Default: until their context ends.
	MaxWait time.Duration

	// FIFO grants locks in order of arrival across processes. Each caller then
	// queues for itself, without local hand-over.
	FIFO bool

	// HandOvers is how many times in a row a lock is passed to the next
	// waiter of this process without asking Redis. Default 32, at most 1000.
	HandOvers int

	// HandOverFor bounds the time from taking a lock in Redis to its last
	// hand-over. Default 100ms.
	HandOverFor time.Duration

	// NoHandOver has every caller ask Redis.
	NoHandOver bool

	// Clock is the wall clock. Default time.Now. The monotonic clock is
	// compared as well, whatever it is.
	Clock func() time.Time

	// Hooks receive events, for metrics.
	Hooks Hooks

	// Logger receives the events of Hooks: failures as warnings, the rest at
	// debug level. Default: none.
	Logger *slog.Logger
}

// lockShortestTTL is the shortest TTL of a lock.
const lockShortestTTL = 10 * time.Millisecond

// lockLongestWait is the longest that a waiter waits between tries.
const lockLongestWait = time.Second

func (o Config) withDefaults() (Config, error) {
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"TTL", o.TTL}, {"Margin", o.Margin}, {"RenewEvery", o.RenewEvery}, {"Timeout", o.Timeout},
		{"PollEvery", o.PollEvery}, {"MaxWait", o.MaxWait}, {"HandOverFor", o.HandOverFor},
	} {
		if d.value < 0 {
			return o, fmt.Errorf("%w: %s is %v, want 0 or more", ErrConfig, d.name, d.value)
		}
	}
	if o.HandOvers < 0 {
		return o, fmt.Errorf("%w: HandOvers is %d, want 0 or more", ErrConfig, o.HandOvers)
	}
	o.Prefix = cmp.Or(o.Prefix, "keyway:lock:")
	o.TTL = cmp.Or(o.TTL, 10*time.Second)
	o.Margin = cmp.Or(o.Margin, o.TTL/20)
	o.RenewEvery = cmp.Or(o.RenewEvery, o.TTL/3)
	o.Timeout = cmp.Or(o.Timeout, min(o.TTL/4, time.Second))
	o.PollEvery = min(cmp.Or(o.PollEvery, 100*time.Millisecond), lockLongestWait)
	o.HandOverFor = cmp.Or(o.HandOverFor, 100*time.Millisecond)
	o.HandOvers = min(cmp.Or(o.HandOvers, 32), 1000)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.FIFO || o.NoHandOver {
		o.HandOvers = 0
	}
	if o.TTL < lockShortestTTL {
		return o, fmt.Errorf("%w: TTL is %v, want at least %v", ErrConfig, o.TTL, lockShortestTTL)
	}
	o.TTL = o.TTL.Truncate(time.Millisecond) // as Redis counts
	if err := checkLabel(o.Label); err != nil {
		return o, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if o.Margin >= o.TTL {
		return o, fmt.Errorf("%w: Margin is %v, want less than the TTL of %v", ErrConfig, o.Margin, o.TTL)
	}
	return o, nil
}
