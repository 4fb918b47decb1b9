// Package local is between a client.Client and the worker.Worker of one process, neither of which
// imports the other.
package local

import (
	"context"
	"net"
	"time"

	"github.com/keyway-go/keyway/gateway"
)

// Worker is the worker of this process as a client sees it.
type Worker interface {
	// Incarnation returns the id of the worker's present session.
	Incarnation() string
	// Baggage returns baggage, the values of the header of that name, with the keys added that are
	// held along ctx's executions. A worker refuses a request for a key that its own baggage names.
	Baggage(ctx context.Context, baggage []string) []string
	// Do runs fn with key held, as worker.Worker.Do does, or TryDo if try is set. If another worker
	// owns key, or ctx descends from a hold of key at another member, here is false and fn has not
	// run.
	Do(ctx context.Context, key string, try bool, fn func(gateway.Execution) error) (here bool, err error)
	// Acquire waits until key is held, as worker.Worker.Do does, or TryDo if try is set. epoch is
	// the highest one known of its partition. The error is [gateway.ErrWaited] after wait, or after
	// Limits.MaxWait if wait is 0 or longer than that. The caller works under the returned context and
	// then calls release. If the worker does not serve key, the error wraps a refusal that names the
	// owner, a [link.RefusedError].
	Acquire(ctx context.Context, key string, epoch int64, try bool, wait time.Duration) (held context.Context, token int64, release func(), err error)
	// Left returns how long the worker may still work with its keys if it cannot renew its session.
	Left() time.Duration
	// Along reports whether an execution along ctx holds key.
	Along(ctx context.Context, key string) bool
	// Dial connects to the worker in memory. The connection is a member's, and takes only the link.
	Dial(ctx context.Context) (net.Conn, error)
}
