// Package local is between a client.Client and the worker.Worker of one process, neither of which
// imports the other.
package local

import (
	"context"
	"net/http"
	"time"

	"github.com/keyway-go/keyway/gateway"
)

// Worker is the worker of this process as a client sees it.
type Worker interface {
	// Incarnation returns the id of the worker's present session.
	Incarnation() string
	// Baggage returns baggage, values of the header of that name, with the keys
	// added that are held along the executions to which ctx belongs. A worker
	// refuses a request for a key that its own baggage names.
	Baggage(ctx context.Context, baggage []string) []string
	// Do runs fn with key held, as worker.Worker.Do does, with try set as TryDo does.
	// here is false, and fn has not run, if another member is to be asked for key.
	Do(ctx context.Context, key string, try bool, fn func(gateway.Execution) error) (here bool, err error)
	// Acquire waits until key is held, as worker.Worker.Do does, with try set as
	// TryDo does. epoch is the highest one known of its partition. wait bounds the
	// wait, unless it is 0: then it ends with [gateway.ErrWaited]. The caller works
	// under the context that it gets, and calls release then. If nobody holds key
	// the error may be a refusal of the worker's, a [link.RefusedError].
	Acquire(ctx context.Context, key string, epoch int64, try bool, wait time.Duration) (held context.Context, token int64, release func(), err error)
	// Left returns for how long the worker may yet work with the keys that it holds,
	// unless it hears of its store again.
	Left() time.Duration
	// Token returns the token of the execution along ctx that holds key.
	Token(ctx context.Context, key string) (token int64, ok bool)
	// ServeHTTP runs a request with its key held, as worker.Worker.Handler does.
	http.Handler
}
