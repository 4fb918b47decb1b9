// Package locking is for programs that take locks without knowing who keeps them. It is one
// interface of locks of keys, so a program can change the keeper without changing the code that
// locks. It imports only the standard library.
//
// A type with concrete results, such as [github.com/keyway-go/keyway/fallback/lock.Locker], becomes a
// [Locker] by [Of]:
//
//	var locker locking.Locker = locking.Of(redisLocker)
//	lease, err := locker.Lock(ctx, "order:42", locking.TTL(time.Minute), locking.Wait(5*time.Second))
//
// # Rules for implementations
//
// A done context always loses, and leaves nothing locked. Wait bounds only the wait and never ends
// the lease. A token is above all earlier ones of its key. A lease renews itself until Unlock, and
// its Context ends before another caller can have the lock. An implementation refuses an option
// that it cannot keep with an error that wraps [ErrOption], and never ignores it.
package locking

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// Errors of all implementations.
var (
	// ErrLocked means that the lock is held, or that others wait for it.
	ErrLocked = errors.New("locking: locked")

	// ErrNotOwner means that the caller unlocked or extended a lock that it no longer held, so
	// others may have held it meanwhile.
	ErrNotOwner = errors.New("locking: not the owner of the lock")

	// ErrUnlockUnknown means that no answer says whether the caller's lock was released. It is free
	// at the end of its TTL at the latest.
	ErrUnlockUnknown = errors.New("locking: unknown whether the lock was released")

	// ErrOption means that an option is wrong, or that the implementation does not support it.
	ErrOption = errors.New("locking: bad option")
)

// Locker takes locks of keys. It is safe for concurrent use.
type Locker interface {
	// Lock takes the lock of a key and waits for it until ctx ends, and then returns ctx's cause. When
	// the wait has a bound that is over, it returns ErrLocked, or another error if nobody has said that
	// the lock is held. The lease's Context descends from ctx.
	Lock(ctx context.Context, key string, opts ...Option) (Lease, error)

	// TryLock takes the lock of a key if it is free, else returns ErrLocked.
	TryLock(ctx context.Context, key string, opts ...Option) (Lease, error)
}

// Lease is a held lock. It is safe for concurrent use.
type Lease interface {
	// Context ends at the latest before another can get the lock. It also ends with Unlock, or after that
	// with the last call within the work that still keeps the lock. context.Cause says why.
	Context() context.Context

	// Token is the fencing token, above 0 and above those of all earlier holders of the key.
	Token() int64

	// Until is when the lock may be another's unless it is extended before. It is in the past if
	// the lock may be another's already. It makes no call.
	Until() time.Time

	// Extend has the lock last for at least ttl from now, and sets the TTL of the renewals that follow;
	// 0 is the TTL that it has. It never shortens the time that is left. It returns ErrNotOwner if the
	// lock is gone or another's.
	Extend(ctx context.Context, ttl time.Duration) error

	// Unlock gives the lock back. It returns nil if it was the caller's up to then, ErrNotOwner if
	// not, and ErrUnlockUnknown if no answer says so.
	Unlock(ctx context.Context) error
}

// Options are what the options of one call say. Implementations get them from [Apply].
type Options struct {
	TTL   time.Duration // 0: the implementation's
	Wait  time.Duration // 0: the implementation's
	Label string        // "": the implementation's
}

// Option changes one call of Lock or TryLock.
type Option func(*Options)

// ShortestTTL is the least that [TTL] and [Lease].Extend take, apart from 0.
const ShortestTTL = 10 * time.Millisecond

// Apply returns the result of the options; later ones override earlier ones. It returns [ErrOption]
// for an option that no implementation supports.
func Apply(opts []Option) (Options, error) {
	var o Options
	for _, opt := range opts {
		opt(&o)
	}
	switch {
	case o.TTL != 0 && o.TTL < ShortestTTL:
		return o, fmt.Errorf("%w: TTL is %v, want at least %v", ErrOption, o.TTL, ShortestTTL)
	case o.Wait < 0:
		return o, fmt.Errorf("%w: Wait needs a bound above 0: TryLock does not wait, and Lock without it has no bound of its own", ErrOption)
	}
	return o, nil
}

// TTL is the time after which the lock is free unless it is renewed, in place of the implementation's.
func TTL(d time.Duration) Option { return func(o *Options) { o.TTL = d } }

// Wait bounds the wait of Lock, see [Locker]. A bound of 0 is refused, since TryLock is the call that does not wait.
func Wait(d time.Duration) Option {
	return func(o *Options) { o.Wait = cmp.Or(d, -1) } // 0 would be the implementation's
}

// Label names the holder for callers that ask who has the lock, such as a host and a job: UTF-8, at
// most 128 bytes.
func Label(s string) Option { return func(o *Options) { o.Label = s } }

// maker is a Locker but for the type of its leases.
type maker[L Lease] interface {
	Lock(ctx context.Context, key string, opts ...Option) (L, error)
	TryLock(ctx context.Context, key string, opts ...Option) (L, error)
}

// Of makes a Locker of m, whose Lock and TryLock return leases of a type of its own.
func Of[L Lease](m maker[L]) Locker { return of[L]{m} }

type of[L Lease] struct{ maker maker[L] }

func (o of[L]) Lock(ctx context.Context, key string, opts ...Option) (Lease, error) {
	return lease(o.maker.Lock(ctx, key, opts...))
}

func (o of[L]) TryLock(ctx context.Context, key string, opts ...Option) (Lease, error) {
	return lease(o.maker.TryLock(ctx, key, opts...))
}

// lease keeps a nil pointer from becoming a Lease that is not nil.
func lease[L Lease](l L, err error) (Lease, error) {
	if err != nil {
		return nil, err
	}
	return l, nil
}
