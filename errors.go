package keyway

import (
	"errors"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
)

// ErrConfig means that a field of [Config] is missing, out of range, or says
// another thing than a second one. The text names the field.
var ErrConfig = errors.New("keyway: bad configuration")

// Errors of calls for a key, which name the key, the partition or the worker.
var (
	ErrBusy          = gateway.ErrBusy          // too many calls wait, for the key or in all; it has not run
	ErrLocked        = gateway.ErrLocked        // TryDo, TryLock, locking.Wait: the key is held, or waited for; it has not run
	ErrWaited        = gateway.ErrWaited        // it waited for Config.Limits.MaxWait; it has not run
	ErrUnavailable   = gateway.ErrUnavailable   // nobody takes calls for the key now; it has not run
	ErrNested        = gateway.ErrNested        // the caller already holds the key; it has not run
	ErrOwnershipLost = gateway.ErrOwnershipLost // the cause with which an execution's context is cancelled
	ErrTimeout       = gateway.ErrTimeout       // likewise, if a request has held its key for as long as it may
	ErrMayHaveRun    = gateway.ErrMayHaveRun    // wrapped wherever the call may have run, or may still run
	ErrNoKey         = gateway.ErrNoKey         // the key is empty
	ErrBadKey        = gateway.ErrBadKey        // the key is too long, not UTF-8, or has control characters
)

// UnownedError is the error of a call for a key that no live node owns yet. It has the
// reason and the time left, and is an [ErrUnavailable].
type UnownedError = gateway.UnownedError

// DeadlockError is the error of a call within an execution that would never end, because
// the key's holder waits for a key of that execution. It names both keys.
type DeadlockError = gateway.DeadlockError

// PanicError is the error of a call of a [Batcher] whose function panicked. It
// wraps [ErrMayHaveRun].
type PanicError = worker.PanicError

// QuarantinedError is the error of a call at the owner of a key whose executions nodes have died of. It has
// the time at which that ends; an operator can end it sooner.
type QuarantinedError = gateway.QuarantinedError

// NotOwnerError is the error of [Node.Local], [Share] and a [Batcher] for a key of another
// node, which it names. The call has not run.
type NotOwnerError = gateway.NotOwnerError
