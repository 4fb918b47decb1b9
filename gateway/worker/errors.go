package worker

import (
	"errors"
	"fmt"

	"github.com/keyway-go/keyway/gateway"
)

// Errors that an execution can end with, or not begin because of.
var (
	// ErrOwnershipLost is the cause with which an execution's context is
	// cancelled when this worker can no longer be sure to own the key.
	ErrOwnershipLost = gateway.ErrOwnershipLost
	// ErrUnavailable means that this worker admits nothing at the moment,
	// because its session is not confirmed or it shuts down.
	ErrUnavailable = gateway.ErrUnavailable
	// ErrBusy means that too many requests wait for the key, or in all.
	ErrBusy = gateway.ErrBusy
	// ErrMayHaveRun is wrapped by every error after which the call may have run.
	ErrMayHaveRun = gateway.ErrMayHaveRun
	// ErrNested means that the caller already holds the key, so the call would
	// wait for itself.
	ErrNested = errors.New("worker: nested call for a key that the caller holds")
)

// NotOwnerError is the error of a call, which did not start, for a key that this
// worker does not own. It names the owner, so far as that is known. While it is
// not, it is an [ErrUnavailable] as well, and its text says what is waited for.
type NotOwnerError struct {
	Partition int
	Owner     string // incarnation; empty when not known
	Addr      string // where Owner takes requests; empty when not known
	Epoch     int64  // of Owner's ownership; 0 when not known

	waiting string // why no owner is known
}

// Is makes an error without an owner an [ErrUnavailable].
func (e *NotOwnerError) Is(target error) bool { return target == ErrUnavailable && e.Owner == "" }

func (e *NotOwnerError) Error() string {
	if e.Owner == "" {
		return fmt.Sprintf("worker: no worker is known to own partition %d: %s", e.Partition, e.waiting)
	}
	return fmt.Sprintf("worker: partition %d belongs to %s at %s since epoch %d", e.Partition, e.Owner, e.Addr, e.Epoch)
}
