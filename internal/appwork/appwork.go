// Package appwork tells the processes around a sidecar that has died whether its app may still work
// for it. A [Record] counts the executions at the app, in memory that outlives the sidecar. A
// [Keeper] in the supervisor has duplicates of the connections to the app, which show when the app
// has ended.
package appwork

import (
	"context"
	"net"
	"os"
	"sync/atomic"
)

// Unproved is in a count, once, when the end of an execution can no longer be seen. From then on the
// connections of a [Keeper] prove nothing.
const Unproved = 1 << 32

// Record is what a sidecar records of its executions at the app. A nil Record records nothing.
type Record struct {
	running    *atomic.Int64
	supervisor *os.File
}

// NewRecord returns a Record that counts in running. If supervisor is not nil, it is the
// [Keeper.Sidecar] of the process that supervises this one.
func NewRecord(running *atomic.Int64, supervisor *os.File) *Record {
	return &Record{running, supervisor}
}

// Begin counts an execution before anything of it reaches the app.
func (r *Record) Begin() {
	if r != nil {
		r.running.Add(1)
	}
}

// End counts an execution no more, because its key is free.
func (r *Record) End() {
	if r != nil {
		r.running.Add(-1)
	}
}

// Lose records that an execution's key is free although the app may still work for it.
func (r *Record) Lose() {
	if r != nil {
		r.running.Or(Unproved) // a sum of many would wrap, and be no count at all
	}
}

// Sharing returns dial, whose connections the supervisor keeps too, if there is one. A connection
// that it does not get counts as lost.
func (r *Record) Sharing(dial func(context.Context) (net.Conn, error)) func(context.Context) (net.Conn, error) {
	if r == nil || r.supervisor == nil {
		return dial
	}
	return func(ctx context.Context) (net.Conn, error) {
		conn, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		shared, err := share(conn, r.supervisor)
		if err != nil {
			r.Lose()
			return conn, nil
		}
		return shared, nil
	}
}
