package ownership

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/internal/metrics"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/ring"
)

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
	callReplace
	storeCallKinds
)

func (c storeCall) String() string {
	return [storeCallKinds]string{"generation", "register", "renew", "observe", "apply", "clear", "clear_locks", "write_locks", "release", "replace"}[c]
}

// storeCalls counts calls to the store, and remembers how they have ended lately.
type storeCalls struct {
	took     [storeCallKinds]metrics.Latencies
	failures [storeCallKinds]atomic.Int64

	mu       sync.Mutex // guards what follows
	answered time.Time
	failed   time.Time
	err      error
}

// count counts a call to the store that has taken so long. That nothing was applied
// since the data or the session are others is no failure. An error that says something definite is an answer.
func (c *storeCalls) count(call storeCall, took time.Duration, err error) {
	c.took[call].Observe(took)
	failed := err != nil && !errors.Is(err, records.ErrGeneration) && !errors.Is(err, records.ErrSessionGone)
	if failed {
		c.failures[call].Add(1)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !failed || errors.Is(err, ring.ErrSettings) {
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
