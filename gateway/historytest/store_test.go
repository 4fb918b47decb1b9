package historytest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/records"
)

// farStore is a store that can be out of reach. What is asked of it first then
// is done now and then, but not answered.
type farStore struct {
	worker.Store
	cut atomic.Int64 // 0 while it is in reach, then 1 more than what was asked of it
}

var errCut = errors.New("the store is out of reach")

func far[T any](s *farStore, ask func() (T, error)) (T, error) {
	var none T
	if s.cut.Load() == 0 {
		return ask()
	}
	if s.cut.Add(1) == 2 && rand.IntN(2) == 0 {
		_, _ = ask()
	}
	return none, errCut
}

func (s *farStore) Generation(ctx context.Context, begin bool) (string, error) {
	return far(s, func() (string, error) { return s.Store.Generation(ctx, begin) })
}

func (s *farStore) Register(ctx context.Context, generation string, session records.Session, ttl time.Duration, holdings []records.Holding) ([]records.PartitionState, error) {
	return far(s, func() ([]records.PartitionState, error) {
		return s.Store.Register(ctx, generation, session, ttl, holdings)
	})
}

func (s *farStore) Renew(ctx context.Context, generation, incarnation string, ttl time.Duration) (records.Snapshot, error) {
	return far(s, func() (records.Snapshot, error) { return s.Store.Renew(ctx, generation, incarnation, ttl) })
}

func (s *farStore) Release(ctx context.Context, incarnation string) error {
	_, err := far(s, func() (any, error) { return nil, s.Store.Release(ctx, incarnation) })
	return err
}

func (s *farStore) Apply(ctx context.Context, generation, incarnation string, changes []records.Change) ([]records.PartitionState, error) {
	return far(s, func() ([]records.PartitionState, error) {
		return s.Store.Apply(ctx, generation, incarnation, changes)
	})
}

func (s *farStore) Clear(ctx context.Context, generation string, partition int, residue []records.Residue) error {
	_, err := far(s, func() (any, error) { return nil, s.Store.Clear(ctx, generation, partition, residue) })
	return err
}

func (s *farStore) ClearLocks(ctx context.Context, generation string, moves []records.Move) error {
	_, err := far(s, func() (any, error) { return nil, s.Store.ClearLocks(ctx, generation, moves) })
	return err
}

func (s *farStore) WriteLocks(ctx context.Context, generation, incarnation string, writes []records.LockWrite) ([]records.WriteNumber, error) {
	return far(s, func() ([]records.WriteNumber, error) {
		return s.Store.WriteLocks(ctx, generation, incarnation, writes)
	})
}

func (s *farStore) Observe(ctx context.Context, generation, incarnation string, since int64, suspects []string) (records.Snapshot, error) {
	return far(s, func() (records.Snapshot, error) {
		return s.Store.Observe(ctx, generation, incarnation, since, suspects)
	})
}
