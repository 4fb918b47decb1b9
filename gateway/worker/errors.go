package worker

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker/internal/keyed"
)

// Errors that an execution can end with, or not begin because of.
var (
	// ErrOwnershipLost is the cause with which an execution's context is
	// cancelled when this worker can no longer be sure to own the key.
	ErrOwnershipLost = gateway.ErrOwnershipLost
	// ErrTimeout is the cause with which the context of a request's execution is
	// cancelled when it has taken Limits.Timeout.
	ErrTimeout = gateway.ErrTimeout
	// ErrUnavailable means that this worker admits nothing at the moment,
	// because its session is not confirmed, it shuts down, or nobody serves the
	// key yet: see [UnownedError].
	ErrUnavailable = gateway.ErrUnavailable
	// ErrBusy means that too many requests wait for the key, or in all.
	ErrBusy = gateway.ErrBusy
	// ErrLocked means that another execution holds the key that was to be had
	// without waiting, or that others wait for it.
	ErrLocked = gateway.ErrLocked
	// ErrWaited means that a call or request waited for as long as Limits.MaxWait
	// allows.
	ErrWaited = gateway.ErrWaited
	// ErrDeadlock is what every [DeadlockError] is.
	ErrDeadlock = gateway.ErrDeadlock
	// ErrMayHaveRun is wrapped by every error after which the call may have run.
	ErrMayHaveRun = gateway.ErrMayHaveRun
	// ErrStreamEnds cancels the context of a request that goes on as a stream, without its key,
	// when the key's partition is given away.
	ErrStreamEnds = keyed.ErrStreamEnds
	// ErrAppDown means that the app behind a sidecar does not answer, so
	// that the worker takes no place on the ring.
	ErrAppDown = errors.New("the app does not answer")
	// ErrNested means that a request over HTTP is for a key that the chain of
	// calls that it belongs to holds already, so that it would wait for itself.
	ErrNested = gateway.ErrNested
)

// NotOwnerError is the error of a call, which did not start, for a key of another worker.
type NotOwnerError = gateway.NotOwnerError

// UnownedError is the error of a call, which did not start, for a key that no live worker is known to serve yet.
type UnownedError = gateway.UnownedError

// DeadlockError is the error of a call within an execution, which did not start since it would have waited for ever.
type DeadlockError = gateway.DeadlockError

// PanicError is a panic of a function that ran for several callers, on none of
// their goroutines: their own stacks do not show where it came from. [Share]
// raises it again in each of them, except for [http.ErrAbortHandler], which is
// raised as it is. It is an [ErrMayHaveRun].
type PanicError struct {
	Value any    // what the function panicked with
	Stack []byte // of the goroutine that panicked
}

func (p *PanicError) Error() string { return fmt.Sprintf("%v\n\n%s", p.Value, p.Stack) }

// Is makes the error an [ErrMayHaveRun].
func (p *PanicError) Is(target error) bool { return target == ErrMayHaveRun }

// Unwrap returns Value if it is an error.
func (p *PanicError) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

func (p *PanicError) raise() {
	if p.Value == http.ErrAbortHandler {
		panic(http.ErrAbortHandler)
	}
	panic(p)
}
