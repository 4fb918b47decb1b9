package trial

import (
	"context"
	"fmt"
	"net"
	"os"
	osexec "os/exec"
	"sync"
	"syscall"
	"time"
)

// Daemon is a server's process, which is started again and again.
type Daemon struct {
	Args []string                 // of env, which runs it: NAME=value…, program, arguments
	Log  string                   // file of its output, which grows
	In   func(func() error) error // runs the start where it belongs, such as in a network namespace; nil: here

	mu   sync.Mutex
	cmd  *osexec.Cmd
	done chan struct{}
}

// Start starts the process. It must not run.
func (d *Daemon) Start() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	log, err := os.OpenFile(d.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd, done := osexec.Command("env", d.Args...), make(chan struct{})
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in := d.In
	if in == nil {
		in = func(start func() error) error { return start() }
	}
	if err := in(cmd.Start); err != nil {
		return err
	}
	d.cmd, d.done = cmd, done
	go func() { defer close(done); _ = cmd.Wait() }()
	return nil
}

// Runs reports whether the process has not ended.
func (d *Daemon) Runs() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.done:
		return false
	default:
		return true
	}
}

// Signal sends a signal, if the process runs.
func (d *Daemon) Signal(s syscall.Signal) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cmd != nil {
		_ = d.cmd.Process.Signal(s)
	}
}

// End ends the process by a signal, and after 10 s by SIGKILL, and waits for it.
func (d *Daemon) End(s syscall.Signal) {
	d.Signal(s)
	if d.done == nil {
		return
	}
	select {
	case <-d.done:
	case <-time.After(10 * time.Second):
		d.Signal(syscall.SIGKILL)
		<-d.done
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

// FreeAddr returns a loopback address at which nothing listens.
func FreeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
