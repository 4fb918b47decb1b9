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
	ErrDeadlock      = gateway.ErrDeadlock      // what every DeadlockError is; it has not run
	ErrUnavailable   = gateway.ErrUnavailable   // nobody takes calls for the key now; it has not run
	ErrNested        = gateway.ErrNested        // the caller already holds the key; it has not run
	ErrOwnershipLost = gateway.ErrOwnershipLost // the cause with which an execution's context is cancelled
	ErrMayHaveRun    = gateway.ErrMayHaveRun    // wrapped wherever the call may have run, or may still run
	ErrNoKey         = gateway.ErrNoKey         // the key is empty
	ErrBadKey        = gateway.ErrBadKey        // the key is too long
)

// UnownedError is the error of a call for a key that no live node owns yet: it
// says what is waited for, and how long. It is an [ErrUnavailable].
type UnownedError = gateway.UnownedError

// DeadlockError is the error of a call within an execution that would have waited
// for ever, since the key's holder waits for that execution's: it names both keys. It is
// an [ErrDeadlock].
type DeadlockError = gateway.DeadlockError

// PanicError is the error of a call in a batch, or of one that shares its result
// with others, whose function has panicked. It wraps [ErrMayHaveRun].
type PanicError = worker.PanicError

// NotOwnerError is the error of a call that works at the owner of its key only, those
// of [Node.Local], [Share] and a [Batcher]. It names the owner. The call has not run.
type NotOwnerError = gateway.NotOwnerError
