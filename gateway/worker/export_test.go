package worker

import (
	"context"

	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/internal/spool"
	"github.com/keyway-go/keyway/gateway/worker/internal/keyed"
	"github.com/keyway-go/keyway/gateway/worker/internal/remote"
	"github.com/keyway-go/keyway/internal/handoff"
)

// OnConfirming has f called between winning a key and starting with it, once
// the lease was compared: the moment at which a process must be able to stop
// for any time. It must be called before the worker is used.
func (w *Worker) OnConfirming(f func()) { w.keys.Confirming = f }

// LooksForSlowKeys reports whether the worker looks for keys that are held long.
func (w *Worker) LooksForSlowKeys() bool { return w.keys.LooksForSlow() }

// AnswersKept returns how many bytes of answers are kept for their clients.
func (w *Worker) AnswersKept() int64 {
	return w.answers.InUse(spool.Memory) + w.answers.InUse(spool.Disk)
}

// HoldFor holds a key as for a member at that address, for a session TTL.
func (w *Worker) HoldFor(ctx context.Context, key, label, from string) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	how := keyed.Asking{}
	p, key, err := w.keys.PlaceOf(key, &how)
	if err == nil {
		_, _, err = w.locks.Get(ctx, p, &remote.Lock{ID: remote.ID(holds.NewID()), Key: key, Label: label, From: from, Lease: w.settings.TTL}, how)
	}
	return err
}

// EndLease makes the worker's session one that may be over.
func (w *Worker) EndLease() { w.keys.Lease.Store(new(handoff.Lease)) }
