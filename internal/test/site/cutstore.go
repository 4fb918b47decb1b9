package site

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/records"
)

// CutStore is a store that can be cut off from its worker.
type CutStore struct {
	worker.Store
	cut atomic.Bool
}

// Set cuts the store off, or undoes that.
func (s *CutStore) Set(cut bool) { s.cut.Store(cut) }

// Reach waits until ctx ends if the store is cut off.
func (s *CutStore) Reach(ctx context.Context) error {
	if !s.cut.Load() {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

// Renew implements [worker.Store].
func (s *CutStore) Renew(ctx context.Context, generation, incarnation string, ttl time.Duration) (records.Snapshot, error) {
	if err := s.Reach(ctx); err != nil {
		return records.Snapshot{}, err
	}
	return s.Store.Renew(ctx, generation, incarnation, ttl)
}

// Register implements [worker.Store].
func (s *CutStore) Register(ctx context.Context, generation string, session records.Session, ttl time.Duration, holdings []records.Holding) ([]records.PartitionState, error) {
	if err := s.Reach(ctx); err != nil {
		return nil, err
	}
	return s.Store.Register(ctx, generation, session, ttl, holdings)
}

// Observe implements [worker.Store].
func (s *CutStore) Observe(ctx context.Context, generation, incarnation string, since int64, suspects []string) (records.Snapshot, error) {
	if err := s.Reach(ctx); err != nil {
		return records.Snapshot{}, err
	}
	return s.Store.Observe(ctx, generation, incarnation, since, suspects)
}
