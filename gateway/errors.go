package gateway

import (
	"errors"

	"github.com/keyway-go/keyway/localmutex/locking"
)

// Errors of calls for a key, at its owner and from elsewhere. They are wrapped
// by those that say which key, partition and worker it was.
var (
	// ErrUnavailable means that nobody takes calls for the key at the moment.
	// The call has not run; later it may.
	ErrUnavailable = errors.New("gateway: no worker takes the call now")
	// ErrBusy means that too many calls wait already: for the key, at its
	// worker, or here. The call has not run.
	ErrBusy = errors.New("gateway: too many calls wait")
	// ErrLocked is [locking.ErrLocked]: the key is held or waited for, and the call was not
	// to wait, or has waited for as long as its caller allows. The call has not run.
	ErrLocked = locking.ErrLocked
	// ErrWaited means that the key was waited for as long as a call may wait. The
	// call has not run.
	ErrWaited = errors.New("gateway: the key was waited for as long as may be")
	// ErrMayHaveRun means that the caller has no answer, or not the whole of it,
	// although the call may have run, or may still run.
	ErrMayHaveRun = errors.New("gateway: the call may have run")
	// ErrOwnershipLost is the cause with which an execution's context is
	// cancelled when its worker can no longer be sure to own the key.
	ErrOwnershipLost = errors.New("gateway: ownership lost")
	// ErrTimeout is the cause with which the context of a request's execution is
	// cancelled that has held its key for as long as it may.
	ErrTimeout = errors.New("gateway: the execution has taken as long as it may")
)
