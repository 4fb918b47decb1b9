package lock

import (
	"context"
	"fmt"

	"github.com/keyway-go/keyway/localmutex/locking"
)

// TryLockAll takes the locks of several keys if all are free, else none, and
// returns locking.ErrLocked. See LockAll.
func (l *Locker) TryLockAll(ctx context.Context, keys []string, opts ...locking.Option) (*Lock, error) {
	return l.takeAll(ctx, keys, false, opts)
}

// LockAll takes the locks of several keys, all or none, in one step, so that
// callers with overlapping sets cannot deadlock. They exclude those that lock
// one of the keys alone. Order and repetitions do not matter. The options are those
// of Lock, for all keys together.
//
// In a cluster the keys must be in one slot, which Redis decides by the part
// in braces: with a Prefix like "{orders}:" all of a Locker's keys are.
func (l *Locker) LockAll(ctx context.Context, keys []string, opts ...locking.Option) (*Lock, error) {
	return l.takeAll(ctx, keys, true, opts)
}

func (l *Locker) takeAll(ctx context.Context, keys []string, wait bool, opts []locking.Option) (*Lock, error) {
	if len(keys) == 0 {
		return nil, fmt.Errorf("%w: no key to lock", ErrConfig)
	}
	return l.take(ctx, distinct(keys), false, wait, opts)
}
