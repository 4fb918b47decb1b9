package worker

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/keyway-go/keyway/gateway"
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
	ErrDeadlock = errors.New("worker: deadlock")
	// ErrMayHaveRun is wrapped by every error after which the call may have run.
	ErrMayHaveRun = gateway.ErrMayHaveRun
	// ErrAppDown means that the app behind a sidecar does not answer, so
	// that the worker takes no place on the ring.
	ErrAppDown = errors.New("the app does not answer")
	// ErrNested means that a request over HTTP is for a key that the chain of
	// calls that it belongs to holds already, so that it would wait for itself.
	ErrNested = errors.New("worker: nested request for a key that its own chain of calls holds")
)

// NotOwnerError is the error of a call, which did not start, for a key of
// another worker.
type NotOwnerError struct {
	Key       string
	Partition int
	Worker    string // the owner's name
	Addr      string // where the owner takes requests
	Owner     string // its incarnation
	Epoch     int64  // of its ownership
}

func (e *NotOwnerError) Error() string {
	return fmt.Sprintf("worker: key %q (partition %d) belongs to worker %s: send it there, to %s, or to a router", e.Key, e.Partition, e.Worker, e.Addr)
}

// UnownedError is the error of a call, which did not start, for a key that no
// live worker is known to serve yet: the store is new or was restarted, members
// come and go, or the session of an owner that died is not over. It is an
// [ErrUnavailable] too.
type UnownedError struct {
	Key       string
	Partition int
	Wait      time.Duration // how long it will take yet, as far as it is known; otherwise 0

	waiting string // for what
	owner   string // the incarnation that the record names, which is not known to live
	epoch   int64  // of that record
}

// Is makes the error an [ErrUnavailable].
func (e *UnownedError) Is(target error) bool { return target == ErrUnavailable }

func (e *UnownedError) Error() string {
	left := ""
	if e.Wait > 0 {
		left = fmt.Sprintf(" (%v left)", e.Wait.Round(100*time.Millisecond))
	}
	return fmt.Sprintf("worker: nobody serves key %q (partition %d): %s%s", e.Key, e.Partition, e.waiting, left)
}

// DeadlockError is the error of a call within an execution that waits for a key
// whose holder waits, directly or through others, for that execution's: of those
// that would wait for each other for ever it is the one whose outermost execution
// began last. It is an [ErrDeadlock]. The call did not start; tried again once the
// execution has ended, it finds the others gone on.
type DeadlockError struct {
	Held string // the key that the execution holds and another waits for
	Key  string // the key that the call waits for
}

// Is makes the error an [ErrDeadlock].
func (e *DeadlockError) Is(target error) bool { return target == ErrDeadlock }

func (e *DeadlockError) Error() string {
	return fmt.Sprintf("worker: deadlock: an execution that holds key %q waits for key %q, whose holder waits for the former: let it end and try again, or ask for keys in one order", e.Held, e.Key)
}

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
