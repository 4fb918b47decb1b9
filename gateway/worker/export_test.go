package worker

import "github.com/keyway-go/keyway/gateway/internal/spool"

// OnConfirming has f called between winning a key and starting with it, once
// the lease was compared: the moment at which a process must be able to stop
// for any time. It must be called before the worker is used.
func (w *Worker) OnConfirming(f func()) { w.confirming = f }

// LooksForSlowKeys reports whether the worker looks for keys that are held long.
func (w *Worker) LooksForSlowKeys() bool { return w.slow.on.Load() }

// AnswersKept returns how many bytes of answers are kept for their clients.
func (w *Worker) AnswersKept() int64 {
	return w.answers.InUse(spool.Memory) + w.answers.InUse(spool.Disk)
}
