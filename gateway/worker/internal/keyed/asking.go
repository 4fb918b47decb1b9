package keyed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/keytable"
	"github.com/keyway-go/keyway/internal/policy"
)

// Origin is a request's origin, which bounds how many of its requests wait for their keys, and
// knows of each that waits that it has not begun. [link.ServerRequest] implements it.
type Origin interface {
	BeginWait() bool
	NoteBegin()
	Begin() error
	EndWait()
}

// MayBegin returns why a request that may have waited must not begin: its origin would not know. o may be nil.
func MayBegin(o Origin) error {
	if o == nil {
		return nil
	}
	if err := o.Begin(); err != nil {
		return fmt.Errorf("%w: %w", gateway.ErrUnavailable, err)
	}
	return nil
}

// Trace follows a request or call through its waits and its execution.
type Trace interface {
	// Waited records a wait for key that has ended now, with err if the key was not had.
	Waited(p *Partition, key string, took time.Duration, err error)
	// Begin records that an execution begins, and returns the caller's ctx for it.
	Begin(ctx context.Context, p *Partition, key string, token int64) context.Context
	// Ran records for how long the execution has held the key.
	Ran(took time.Duration)
	// End records its end, and why it was cancelled; "" if it was not.
	End(cancelled string)
}

// Asking is how a caller asks for a key. It does not change while the caller waits.
type Asking struct {
	Call    bool           // a call of this program, which cannot be sent elsewhere; not a request
	Try     bool           // without waiting
	Along   bool           // not if ctx descends from a hold of the key that is not of this worker: ErrAlong
	Lock    bool           // for a lock, which no quarantine ends
	Shared  bool           // together with others, see [keytable.Wait]
	MaxWait time.Duration  // of a caller without a policy: how long it may wait, at most Limits.MaxWait; 0 for that long
	Epoch   int64          // the highest that the caller knows for the key's partition, or 0
	Share   Origin         // where the request comes from; nil for no bound but the worker's own
	Item    *keytable.Item // the item that the holder of the key may take along, or nil

	Alike bool // the item is of a request or call that may get the answer to an equal one

	Policy *policy.Policy // of the caller's route; nil for none
	Client uint64         // that it asks for, see [keytable.Wait]; 0 for the program itself
	Trace  Trace          // follows it; nil for none
}

// ErrAlong means that a hold elsewhere, along the context, has the key.
var ErrAlong = errors.New("worker: the key is held along the context")

// ErrLinkFull means that the link that a request came over carries many that wait.
var ErrLinkFull = fmt.Errorf("%w: waiting calls have reached half of what their link carries", gateway.ErrBusy)

func (how *Asking) limited() bool { return how.Policy != nil && how.Policy.Rate != policy.Rate{} }

func (how *Asking) keyless() bool {
	return how.Policy != nil && (how.Policy.Mode == policy.Affinity || how.Policy.Mode == policy.Unkeyed)
}

// Unkeyed reports whether the caller's route has requests without a key.
func (how *Asking) Unkeyed() bool { return how.Policy != nil && how.Policy.Mode == policy.Unkeyed }

// Batches reports whether requests of the caller's route may go to an app together.
func (how *Asking) Batches() bool {
	return how.Policy == nil || how.Policy.Mode == policy.Auto || how.Policy.Mode == policy.Batch
}

// A request whose route holds no key runs as an execution of a unique name, in the partition of its
// key or, without a key, in any that the worker serves. It is admitted, bounded, cancelled and
// waited for like all others, and blocks none. The name is a NUL, a number, another NUL and the
// key: no key has a NUL.

// IsKeyless reports whether a name is that of a request which holds no key.
func IsKeyless(name string) bool { return strings.HasPrefix(name, "\x00") }

// KeyOf returns the key of an execution of that name, "" for none.
func KeyOf(name string) string {
	if !IsKeyless(name) {
		return name
	}
	_, key, _ := strings.Cut(name[1:], "\x00")
	return key
}
