package lock

import (
	"context"
	"fmt"
)

// TryLockAll takes the locks of several keys if all are free, else none, and
// returns ErrLocked. See LockAll.
func (l *Locker) TryLockAll(ctx context.Context, keys ...string) (*Lock, error) {
	return l.takeAll(ctx, keys, false)
}

// LockAll takes the locks of several keys, all or none, in one step, so that
// callers with overlapping sets cannot deadlock. They exclude those that lock
// one of the keys alone. Order and repetitions do not matter.
//
// In a cluster the keys must be in one slot, which Redis decides by the part
// in braces: with a Prefix like "{orders}:" all of a Locker's keys are.
func (l *Locker) LockAll(ctx context.Context, keys ...string) (*Lock, error) {
	return l.takeAll(ctx, keys, true)
}

func (l *Locker) takeAll(ctx context.Context, keys []string, wait bool) (*Lock, error) {
	if len(keys) == 0 {
		return nil, fmt.Errorf("%w: no key to lock", ErrConfig)
	}
	return l.take(ctx, distinct(keys), false, wait, nil)
}
