package worker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/local"
	"github.com/keyway-go/keyway/gateway/worker/internal/keyed"
)

// Local returns w for client.Config.Local of a client of this process, which reaches it
// without a connection. h, which [Worker.Handler] or sidecar.New returned, gets the
// client's requests for the keys that w owns.
func (w *Worker) Local(h http.Handler) local.Worker { return &inProcess{h, w} }

// inProcess is a [local.Worker].
type inProcess struct {
	http.Handler
	worker *Worker
}

// Incarnation returns the id of the worker's present session.
func (l *inProcess) Incarnation() string { return l.worker.Incarnation() }

// Baggage returns baggage with the keys added that are held along ctx.
func (l *inProcess) Baggage(ctx context.Context, baggage []string) []string {
	return Baggage(ctx, baggage)
}

// Token returns the token of the execution along ctx that holds key at the worker.
func (l *inProcess) Token(ctx context.Context, key string) (token int64, ok bool) {
	return l.worker.keys.TokenAlong(ctx, key)
}

// Left returns how long the worker may still work with its keys without renewing its session; 0 if
// that is over.
func (l *inProcess) Left() time.Duration {
	_, surrender := l.worker.keys.Left()
	return surrender
}

// Do is [Worker.Do], or TryDo, for a caller that can ask other members. If another worker owns key,
// or ctx descends from a hold of key at another member, here is false and fn has not run.
func (l *inProcess) Do(ctx context.Context, key string, try bool, fn func(gateway.Execution) error) (here bool, err error) {
	w := l.worker
	x, err := w.keys.Admit(ctx, key, keyed.Asking{Call: true, Try: try, Along: true, Trace: w.traceOfCall(ctx)})
	if err != nil {
		if _, elsewhere := errors.AsType[*gateway.NotOwnerError](err); elsewhere || err == keyed.ErrAlong {
			return false, err
		}
		return true, w.counts.refused(ctx, err)
	}
	defer w.keys.Release(x)
	return true, fn(x.Public())
}

// Acquire waits until key is held, as Do does, or with try does as TryDo. epoch is the
// highest epoch of its partition that the caller knows. The wait ends with [gateway.ErrWaited]
// after wait, or after Limits.MaxWait if wait is 0 or longer than that. The
// caller works under held, and then calls release. If the worker does not serve key, the
// error wraps a refusal that names the owner.
func (l *inProcess) Acquire(ctx context.Context, key string, epoch int64, try bool, wait time.Duration) (held context.Context, token int64, release func(), err error) {
	x, err := l.worker.keys.Admit(ctx, key, keyed.Asking{Epoch: epoch, Try: try, MaxWait: min(wait, l.worker.cfg.MaxWait), Trace: l.worker.traceOfCall(ctx)})
	if err != nil {
		if refusal := refusalOf(err); refusal != nil {
			err = fmt.Errorf("%w: %w", refusal, err)
		}
		return nil, 0, nil, err
	}
	return x.Context(), x.Token(), func() { l.worker.keys.Release(x) }, nil
}
