package main

import (
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/keyway-go/keyway/internal/cli"
)

const (
	steady    = 10 * time.Second       // a life at least as long begins the back-off anew
	firstWait = 100 * time.Millisecond // before the second start in a row, then twice as long each time
	maxWait   = 10 * time.Second
)

// supervise runs the worker as a child until it ends in order, and starts it again when
// it dies. The new child proves by the lock file that the old one is dead, and releases
// its incarnations. Signals go to the child. The result is a [cli.Exit] with the child's
// code. A child that fails by itself soon after the first start is not started again: its settings or its
// machine do not allow it.
//
// When this process dies, the kernel sends the child SIGTERM, so it hands its keys over.
func supervise(args []string, logger *slog.Logger) error {
	runtime.LockOSThread() // the kernel takes the end of the thread that starts the child for that of the parent
	defer runtime.UnlockOSThread()
	program, err := os.Executable()
	if err != nil {
		return err
	}
	signals, deaths := make(chan os.Signal, 16), make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	signal.Notify(deaths, syscall.SIGCHLD)
	argv := append([]string{os.Args[0]}, append(slices.Clone(args), "--supervise=false")...)
	ending, wait := false, time.Duration(0)
	for first := true; ; first = false {
		began := time.Now()
		pid, err := syscall.ForkExec(program, argv, &syscall.ProcAttr{
			Env: os.Environ(), Files: []uintptr{0, 1, 2},
			Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}, // a terminal signals this process alone
		})
		if err != nil {
			return err
		}
		var status syscall.WaitStatus
		for dead := false; !dead; dead, status = reap(pid) {
			select {
			case s := <-signals:
				ending = ending || s == syscall.SIGTERM || s == syscall.SIGINT
				_ = syscall.Kill(pid, s.(syscall.Signal)) // it is not reaped, so the id is its own
			case <-deaths:
			}
		}
		code, lived := status.ExitStatus(), time.Since(began)
		if status.Signaled() {
			code = 128 + int(status.Signal())
		}
		if ending || code == 0 || first && status.Exited() && lived < steady {
			return cli.Exit(code)
		}
		if lived >= steady || first {
			wait = 0
		} else {
			wait = min(max(2*wait, firstWait), maxWait)
		}
		logger.Warn("the worker died: it is started again", "pid", pid, "status", code, "lived", lived.Round(time.Millisecond), "after", wait)
		for over := time.After(wait); wait > 0 && over != nil; {
			select {
			case <-over:
				over = nil
			case <-deaths:
				reap(0)
			case s := <-signals:
				if s == syscall.SIGTERM || s == syscall.SIGINT {
					return cli.Exit(code)
				}
			}
		}
	}
}

// reap takes the ends of all children: a process with id 1 gets those of others, too. It
// reports whether pid is among them, whose threads have all ended then.
func reap(pid int) (dead bool, status syscall.WaitStatus) {
	for {
		var s syscall.WaitStatus
		ended, err := syscall.Wait4(-1, &s, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil || ended <= 0:
			return dead, status
		case ended == pid:
			dead, status = true, s
		}
	}
}
