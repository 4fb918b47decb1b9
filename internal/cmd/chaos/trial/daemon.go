package trial

import (
	"context"
	"fmt"
	osexec "os/exec"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/keyway-go/keyway/internal/cluster/proc"
)

// Daemon is a server's process, which is started again and again.
type Daemon struct {
	Args []string                 // of env, which runs it: NAME=value…, program, arguments
	Log  string                   // file of its output, which grows
	In   func(func() error) error // runs the start where it belongs, such as in a network namespace; nil: here

	now atomic.Pointer[proc.Process]
}

// Start starts the process. It must not run.
func (d *Daemon) Start() error {
	p, err := proc.Begin(proc.Spec{Name: d.Log, Program: "env", Args: d.Args, Log: d.Log, Run: func(cmd *osexec.Cmd) error {
		cmd.WaitDelay = time.Second // a child may have its output too
		if d.In == nil {
			return cmd.Start()
		}
		return d.In(cmd.Start)
	}})
	if err == nil {
		d.now.Store(p)
	}
	return err
}

// Runs reports whether the process has not ended.
func (d *Daemon) Runs() bool { return d.now.Load().Ended() == nil }

// Signal sends a signal, if the process runs.
func (d *Daemon) Signal(s syscall.Signal) {
	if p := d.now.Load(); p != nil {
		_ = p.Signal(s)
	}
}

// End ends the process by a signal, and after 10 s by SIGKILL, and waits for it.
func (d *Daemon) End(s syscall.Signal) {
	if p := d.now.Load(); p != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = p.End(ctx, s)
	}
}

// Await waits until something holds, for a minute at most.
func Await(ctx context.Context, what string, holds func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for !holds() {
		if !Sleep(ctx, 100*time.Millisecond) {
			return fmt.Errorf("in a minute it does not come about that %s", what)
		}
	}
	return nil
}
