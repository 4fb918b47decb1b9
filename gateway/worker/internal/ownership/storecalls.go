package ownership

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/internal/metrics"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/status"
	"github.com/keyway-go/keyway/ring"
)

// callCounts is what is counted of calls to the store, and of sessions.
type callCounts struct {
	stored   [storeCallKinds]metrics.Latencies
	failed   [storeCallKinds]atomic.Int64 // of these
	sessions atomic.Int64                 // that were lost
}

// storeCall is a kind of call to the store.
type storeCall uint8

const (
	callGeneration storeCall = iota
	callRegister
	callRenew
	callObserve
	callApply
	callClear
	callClearLocks
	callWriteLocks
	callRelease
	storeCallKinds
)

func (c storeCall) String() string {
	return [storeCallKinds]string{"generation", "register", "renew", "observe", "apply", "clear", "clear_locks", "write_locks", "release"}[c]
}

// called counts a call to the store that has taken so long. That nothing was applied
// since the data or the session are others is an answer, and no failure.
func (c *callCounts) called(call storeCall, took time.Duration, err error) {
	c.stored[call].Observe(took)
	if err != nil && !errors.Is(err, records.ErrGeneration) && !errors.Is(err, records.ErrSessionGone) {
		c.failed[call].Add(1)
	}
}

// storeCalls remembers how calls to the store have ended lately.
type storeCalls struct {
	mu       sync.Mutex // guards what follows
	answered time.Time
	failed   time.Time
	err      error
}

// noteResult records the end of a call. An error that says something definite is an answer.
func (c *storeCalls) noteResult(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil || errors.Is(err, records.ErrGeneration) || errors.Is(err, records.ErrSessionGone) || errors.Is(err, ring.ErrSettings) {
		c.answered = time.Now()
	} else {
		c.failed, c.err = time.Now(), err
	}
}

// because adds to an error why the store cannot be used, if it cannot.
func (c *storeCalls) because(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil || !c.failed.After(c.answered) {
		return err
	}
	return fmt.Errorf("%w: %w", err, c.err)
}

func (c *storeCalls) status() (s status.StoreStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.answered.IsZero() {
		s.Answered = new(c.answered)
	}
	if c.err != nil {
		s.LastError, s.FailedAt = c.err.Error(), new(c.failed)
	}
	return s
}
