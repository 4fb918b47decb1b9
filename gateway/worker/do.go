package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/local"
	"github.com/keyway-go/keyway/gateway/worker/internal/keyed"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// Do runs fn while it holds key: no other execution of the key runs at the same time, here or on
// another worker (see docs/guarantees.md for the conditions). Callers of one key run in the order
// of arrival. Within an execution (that is, with its context), a call for the key that it holds
// runs at once as a part of it, with the same token.
//
// Do returns fn's error. If fn has not run, the error is ctx's cause, a [*gateway.DeadlockError], a
// [*gateway.NotOwnerError], or wraps [gateway.ErrNoKey], [gateway.ErrBadKey], [gateway.ErrBusy],
// [gateway.ErrWaited], [gateway.ErrNested] or [gateway.ErrUnavailable]. While no live worker owns the key Do waits, for
// at most Limits.MaxWait; then the error is an [*gateway.UnownedError].
func (w *Worker) Do(ctx context.Context, key string, fn func(gateway.Execution) error) error {
	_, err := w.do(ctx, key, false, false, fn)
	return err
}

// TryDo is [Worker.Do] for a caller that does not wait. Its error wraps [gateway.ErrLocked] if
// another execution holds key, or others wait for it, and [gateway.ErrUnavailable] if the worker
// admits nothing. It is a [*gateway.NotOwnerError] or [*gateway.UnownedError] if this worker does not
// serve key.
func (w *Worker) TryDo(ctx context.Context, key string, fn func(gateway.Execution) error) error {
	_, err := w.do(ctx, key, true, false, fn)
	return err
}

// do runs fn with key held. It reports false if a caller that asks along its context has to ask elsewhere.
func (w *Worker) do(ctx context.Context, key string, try, along bool, fn func(gateway.Execution) error) (here bool, err error) {
	x, err := w.keys.Admit(ctx, key, keyed.Asking{Call: true, Try: try, Along: along, Trace: w.traceOfCall(ctx)})
	if err != nil {
		if _, elsewhere := errors.AsType[*gateway.NotOwnerError](err); along && (elsewhere || err == keyed.ErrAlong) {
			return false, err
		}
		return true, w.counts.refused(ctx, err)
	}
	defer w.keys.Release(x)
	return true, fn(x.Public())
}

// TokenFrom returns the fencing token of the innermost execution that ctx
// belongs to, if that holds a key.
func TokenFrom(ctx context.Context) (token int64, ok bool) { return keyed.TokenFrom(ctx) }

// Baggage returns baggage, the values of the header of that name, with the keys added that are held
// along ctx's executions. A request that carries it fails with status 508 if it comes back to one
// of these keys.
func Baggage(ctx context.Context, baggage []string) []string { return keyed.Baggage(ctx, baggage) }

// Local returns w for client.Config.Local of a client of this process, which reaches it
// in memory. h, which [Worker.Handler] or sidecar.New returned, gets the
// client's requests for the keys that w owns.
func (w *Worker) Local(h http.Handler) local.Worker { return &inProcess{w, w.newLinkServer(h)} }

// inProcess is a [local.Worker], which says what the methods do.
type inProcess struct {
	worker *Worker
	link   *link.Server
}

func (l *inProcess) Dial(context.Context) (net.Conn, error) { return dialInMemory(l.link), nil }

func (l *inProcess) Incarnation() string { return l.worker.Incarnation() }

func (l *inProcess) Baggage(ctx context.Context, baggage []string) []string {
	return Baggage(ctx, baggage)
}

func (l *inProcess) Along(ctx context.Context, key string) bool {
	return l.worker.keys.Along(ctx, key)
}

func (l *inProcess) Left() time.Duration {
	_, surrender := l.worker.keys.Left()
	return surrender
}

func (l *inProcess) Do(ctx context.Context, key string, try bool, fn func(gateway.Execution) error) (here bool, err error) {
	return l.worker.do(ctx, key, try, true, fn)
}

func (l *inProcess) Acquire(ctx context.Context, key string, epoch int64, try bool, wait time.Duration) (held context.Context, token int64, release func(), err error) {
	x, err := l.worker.keys.Admit(ctx, key, keyed.Asking{Epoch: epoch, Try: try, Lock: true, MaxWait: min(wait, l.worker.cfg.MaxWait), Trace: l.worker.traceOfCall(ctx)})
	if err != nil {
		if refusal := refusalOf(err); refusal != nil {
			err = fmt.Errorf("%w: %w", refusal, err)
		}
		return nil, 0, nil, err
	}
	return x.Context(), x.Token(), func() { l.worker.keys.Release(x) }, nil
}
