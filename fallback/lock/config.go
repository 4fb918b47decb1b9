package lock

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// Errors of locks, as well as those of package locking. Those that end the context of a
// held lock are found with context.Cause.
var (
	// ErrExpired is the cause of a held lock's context when it could not
	// be renewed in time.
	ErrExpired = errors.New("lock: expired")

	// ErrLost is the cause of a held lock's context when the server says
	// that the lock is gone or another's.
	ErrLost = errors.New("lock: lost")

	// ErrUnlocked is the cause of a held lock's context after its Unlock.
	ErrUnlocked = errors.New("lock: unlocked")

	// ErrDetached is the cause of a held lock's context after its Detach.
	ErrDetached = errors.New("lock: detached")

	// ErrNested means that the caller would deadlock with a lock that its own context holds.
	ErrNested = errors.New("lock: would wait for a lock that its own context holds")

	// ErrNoQuorum means that too few servers answered in time to say whether the
	// lock is free.
	ErrNoQuorum = errors.New("lock: no quorum")

	// ErrClosed means that the Locker is closed.
	ErrClosed = errors.New("lock: locker is closed")

	// errConfig means that a Locker cannot be made with these options.
	errConfig = errors.New("lock: bad configuration")
)

// Config configures a Locker. Clients that contend for the same locks must agree on Prefix and FIFO,
// and on the servers.
type Config struct {
	// Prefix of every Redis key. Default "keyway:lock:".
	Prefix string

	// NoPrefix makes the name of a lock its Redis key, without prefix and braces. Prefix then
	// applies only to the lock's other keys. In a cluster, a name with a closing brace needs a hash
	// tag of its own.
	NoPrefix bool

	// Label describes the holder, such as a host and a job, to callers of State. UTF-8, at most 128
	// bytes. Default: none.
	Label string

	// TTL is how long a lock lasts without a renewal. Default 10s, at least 10ms.
	TTL time.Duration

	// Margin is how long before its TTL a lock's context ends. It covers clocks of different rates
	// and late timers. Default TTL/20.
	Margin time.Duration

	// RenewEvery is the time between renewals. Default TTL/3.
	RenewEvery time.Duration

	// NoRenewal leaves renewing to Lock.Extend.
	NoRenewal bool

	// ContinueOnFailure keeps the context of a held lock alive when the lock cannot be renewed. The
	// Locker continues to try, and takes the lock again if it is free. Others may hold the lock
	// meanwhile, so use it only if a second run is harmless or the resource checks fencing tokens.
	// The context still ends when another holder is seen. Default: the context ends before another
	// client can hold the lock.
	ContinueOnFailure bool

	// Timeout of one call to Redis. Default TTL/4, at most 1s.
	Timeout time.Duration

	// Poll makes waiters try every PollEvery, as they always do for a quorum.
	// Default: they wait for a message on one subscription connection that the Locker's waiters
	// share (in a cluster sharded, one per server). They also try when the lock's TTL ends, and at
	// least every second.
	Poll bool

	// PollEvery is the longest time between tries of a waiter that polls; the shortest is half of
	// it. Default 100ms, at most 1s.
	PollEvery time.Duration

	// MaxWait bounds the wait of Lock, RLock and LockAll, which then return locking.ErrLocked, or what
	// the last call failed with. Default: until their context ends.
	MaxWait time.Duration

	// FIFO grants locks in order of arrival across processes. Each caller then queues in Redis,
	// without local hand-over. A Locker of the same Prefix without FIFO overtakes the queue.
	FIFO bool

	// HandOverFor bounds the time from taking a lock in Redis to its last hand-over: until then it is
	// passed to the next waiter of this process without asking Redis, up to 32 times. Default 100ms.
	HandOverFor time.Duration

	// Clock is the wall clock. Default time.Now. The monotonic clock is compared in any case.
	Clock func() time.Time

	// Logger receives what happens to locks: failures as warnings, the rest at
	// debug level. Default: none.
	Logger *slog.Logger

	servers int // of a quorum; 0 for none
}

// lockLongestWait is the longest that a waiter waits between tries.
const lockLongestWait = time.Second

func (cfg Config) withDefaults(clients ...redis.UniversalClient) (Config, error) {
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"TTL", cfg.TTL}, {"Margin", cfg.Margin}, {"RenewEvery", cfg.RenewEvery}, {"Timeout", cfg.Timeout},
		{"PollEvery", cfg.PollEvery}, {"MaxWait", cfg.MaxWait}, {"HandOverFor", cfg.HandOverFor},
	} {
		if d.value < 0 {
			return cfg, fmt.Errorf("%w: %s is %v, want 0 or more", errConfig, d.name, d.value)
		}
	}
	cfg.Prefix = cmp.Or(cfg.Prefix, "keyway:lock:")
	cfg.TTL = cmp.Or(cfg.TTL, 10*time.Second)
	cfg.Margin = cmp.Or(cfg.Margin, cfg.TTL/20)
	cfg.RenewEvery = cmp.Or(cfg.RenewEvery, cfg.TTL/3)
	cfg.Timeout = cmp.Or(cfg.Timeout, min(cfg.TTL/4, time.Second))
	cfg.PollEvery = min(cmp.Or(cfg.PollEvery, 100*time.Millisecond), lockLongestWait)
	cfg.HandOverFor = cmp.Or(cfg.HandOverFor, 100*time.Millisecond)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.TTL = cfg.TTL.Truncate(time.Millisecond) // as Redis counts
	ends, isRing := cfg.TTL-cfg.Margin, func(c redis.UniversalClient) bool { _, is := c.(*redis.Ring); return is }
	switch err := checkLabel(cfg.Label); {
	case slices.ContainsFunc(clients, isRing):
		return cfg, fmt.Errorf("%w: a redis.Ring looks for a lock at another server while it cannot reach the lock's own, where others may hold it: use a Redis Cluster", errConfig)
	case cfg.TTL < locking.ShortestTTL:
		return cfg, fmt.Errorf("%w: TTL is %v, want at least %v", errConfig, cfg.TTL, locking.ShortestTTL)
	case err != nil:
		return cfg, fmt.Errorf("%w: %w", errConfig, err)
	case cfg.Margin >= cfg.TTL:
		return cfg, fmt.Errorf("%w: Margin is %v, want less than the TTL of %v", errConfig, cfg.Margin, cfg.TTL)
	case cfg.RenewEvery >= ends && !cfg.NoRenewal:
		return cfg, fmt.Errorf("%w: RenewEvery is %v, want less than the %v after which a lock ends", errConfig, cfg.RenewEvery, ends)
	}
	return cfg, nil
}

// policy is that of the Locker's locks.
func (cfg Config) policy() holder.Policy {
	p := holder.Policy{TTL: cfg.TTL, Keeper: holder.Store, Persist: cfg.ContinueOnFailure, Margin: cfg.Margin, Every: cfg.RenewEvery, TurnsFor: cfg.HandOverFor}
	if cfg.NoRenewal {
		p.Every = holder.Never
	}
	return p
}

// options are what the options of one call say, with the Locker's own in place of what they leave out.
func (l *Locker) options(opts []locking.Option) (locking.Options, error) {
	o, err := locking.Apply(opts)
	if err != nil {
		return o, err
	}
	if err := checkLabel(o.Label); err != nil {
		return o, fmt.Errorf("%w: %w", locking.ErrOption, err)
	}
	o.TTL = cmp.Or(o.TTL.Truncate(time.Millisecond), l.cfg.TTL)
	o.Wait = cmp.Or(o.Wait, l.cfg.MaxWait)
	o.Label = cmp.Or(o.Label, l.cfg.Label)
	return o, nil
}

// lockLongestLabel is how long a label may be, in bytes.
const lockLongestLabel = 128

func checkLabel(label string) error {
	if len(label) > lockLongestLabel || !utf8.ValidString(label) {
		return fmt.Errorf("label %.*q, want UTF-8 of at most %d bytes", lockLongestLabel, label, lockLongestLabel)
	}
	return nil
}
