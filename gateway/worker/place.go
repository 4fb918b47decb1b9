package worker

import "context"

// LeaveRing takes the worker off the ring until [Worker.JoinRing], and lets others take over its
// partitions. It returns nil when they have them and none of their executions runs here any more.
// The worker keeps its session, answers, and sends requests elsewhere. If ctx ends first, the error
// says what is still here, and the worker stays off the ring. If there is no other worker, it stays
// on the ring and LeaveRing returns an error. A worker that is being drained for good
// ([Worker.Drain]) continues with that.
func (w *Worker) LeaveRing(ctx context.Context) error { return w.shell.LeaveRing(ctx) }

// JoinRing undoes [Worker.LeaveRing]. It does nothing if the worker was not told to leave, and
// fails if it leaves for good.
func (w *Worker) JoinRing() error { return w.shell.JoinRing() }
