package gateway

import (
	"errors"
	"fmt"
	"time"

	"github.com/keyway-go/keyway/localmutex/locking"
)

// Errors of calls for a key, at its owner and elsewhere. Errors that name the key, the partition
// and the worker wrap them.
var (
	// ErrUnavailable means that no worker takes calls for the key at the moment. The call has not
	// run; a later one may.
	ErrUnavailable = errors.New("gateway: no worker takes the call now")
	// ErrBusy means that too many calls wait already: for the key, at its
	// worker, or here. The call has not run.
	ErrBusy = errors.New("gateway: too many calls wait")
	// ErrLocked is [locking.ErrLocked]: the key is held or waited for, and the call was not
	// to wait, or has waited for as long as its caller allows. The call has not run.
	ErrLocked = locking.ErrLocked
	// ErrWaited means that the key was waited for as long as a call may wait. The
	// call has not run.
	ErrWaited = errors.New("gateway: the key was not free in time")
	// ErrMayHaveRun means that the caller has no answer, or not the whole of it,
	// although the call may have run, or may still run.
	ErrMayHaveRun = errors.New("gateway: the call may have run")
	// ErrOwnershipLost is the cause of an execution's context when its worker can no longer be sure
	// to own the key.
	ErrOwnershipLost = errors.New("gateway: ownership lost")
	// ErrTimeout is the cause of an execution's context when the request has held its key for too
	// long.
	ErrTimeout = errors.New("gateway: the execution exceeded its time limit")

	// ErrNested means that a request over HTTP, or a call within one, is for a key that the chain of
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

// QuarantinedError says that a call did not start because workers have died while executions of its key
// ran: the key is quarantined for ten minutes, or until an operator releases it (docs/guarantees.md).
type QuarantinedError struct {
	Key     string
	Workers []string // that have died
	Until   time.Time
}

func (e *QuarantinedError) Error() string {
	return fmt.Sprintf("worker: key %q is quarantined until %s: workers %q died while executions of it ran; mend the cause, then release it with ctl release", e.Key, e.Until.UTC().Format(time.RFC3339), e.Workers)
}

// UnownedError says that a call did not start because no live worker is known to
// serve its key. The store is new or was restarted, members come and go, or the
// session of a dead owner is not over. It is an [ErrUnavailable] too.
type UnownedError struct {
	Key       string
	Partition int
	Wait      time.Duration // how long it will take yet, as far as it is known; otherwise 0

	WaitsFor string // in words
	Owner    string // the incarnation that the record names, which is not known to live
	Epoch    int64  // of that record
}

// Is makes the error an [ErrUnavailable].
func (e *UnownedError) Is(target error) bool { return target == ErrUnavailable }

func (e *UnownedError) Error() string {
	left := ""
	if e.Wait > 0 {
		left = fmt.Sprintf(" (%v left)", e.Wait.Round(100*time.Millisecond))
	}
	return fmt.Sprintf("worker: nobody serves key %q (partition %d): %s%s", e.Key, e.Partition, e.WaitsFor, left)
}

// DeadlockError says that a call within an execution did not start, since it would have closed a
// circle: its key's holder waits, directly or through others, for the key of the execution. The
// refused call is the one whose outermost execution began last. Once that execution has ended the
// others continue, and the call may be tried again.
type DeadlockError struct {
	Held string // the key that the execution holds and another waits for
	Key  string // the key that the call waits for
}

func (e *DeadlockError) Error() string {
	return fmt.Sprintf("worker: deadlock: an execution that holds key %q waits for key %q, whose holder waits for the former: let it end and try again, or ask for keys in one order", e.Held, e.Key)
}
