package main

import (
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/keyway-go/keyway/internal/appwork"
	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/lockfile"
)

const (
	steady    = 10 * time.Second       // a life at least as long begins the back-off anew
	firstWait = 100 * time.Millisecond // before the second start in a row, then twice as long each time
	maxWait   = 10 * time.Second
)

// supervise runs the worker as a child until it ends in order, and starts it again when
// it dies. The new child proves by the lock file that the old one is dead, and releases
// its incarnations. Before that, the app gets up to grace to end what it did for the old one, unless
// lockFile shows that it did nothing. Signals go to the child. The result is a [cli.Exit] with the child's
// code. A child that fails by itself soon after the first start is not started again: its settings or its
// machine do not allow it. One that cannot be started again, for want of processes or files, is tried until it can.
//
// When this process dies, the kernel sends the child SIGTERM, so it hands its keys over.
func supervise(args []string, lockFile string, grace time.Duration, logger *slog.Logger) error {
	runtime.LockOSThread() // the kernel takes the end of the thread that starts the child for that of the parent
	defer runtime.UnlockOSThread()
	program, err := os.Executable()
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	pause := func(over <-chan struct{}, d time.Duration) (told bool) { // to end
		for late := time.After(d); ; {
			select {
			case <-late:
				return false
			case <-over:
				return false
			case s := <-signals:
				if s == syscall.SIGTERM || s == syscall.SIGINT {
					return true
				}
			}
		}
	}
	ending, wait, code := false, time.Duration(0), 0
	longer := func() time.Duration { return min(max(2*wait, firstWait), maxWait) }
	for first := true; ; first = false {
		began := time.Now()
		child, keeper, err := startChild(program, args, grace)
		if err != nil && first {
			return err
		}
		if err != nil {
			wait = longer()
			logger.Error("the worker cannot be started again: this is tried until it can", "error", err, "after", wait)
			if pause(nil, wait) {
				return cli.Exit(code)
			}
			continue
		}
		dead := make(chan error, 1)
		go func() { dead <- child.Wait() }()
		for living := true; living; {
			select {
			case s := <-signals:
				ending = ending || s == syscall.SIGTERM || s == syscall.SIGINT
				_ = child.Process.Signal(s) // it may have ended
			case <-dead: // as its state says
				living = false
			}
		}
		status := child.ProcessState.Sys().(syscall.WaitStatus)
		lived := time.Since(began)
		if code = status.ExitStatus(); status.Signaled() {
			code = 128 + int(status.Signal())
		}
		if ending || code == 0 || first && status.Exited() && lived < steady {
			return cli.Exit(code)
		}
		if lived >= steady || first {
			wait = 0
		} else {
			wait = longer()
		}
		logger.Warn("the worker died: it is started again", "pid", child.Process.Pid, "status", code, "lived", lived.Round(time.Millisecond), "after", wait)
		if running, err := lockfile.AtApp(lockFile); err == nil && running > 0 {
			if pause(keeper.Ended(running), grace) {
				return cli.Exit(code)
			}
			if err := lockfile.Clear(lockFile, running); err != nil {
				logger.Warn("cannot record that the app has ended: its keys are free a little later", "error", err)
			}
		}
		if wait > 0 && pause(nil, wait) {
			return cli.Exit(code)
		}
	}
}

// startChild starts the worker, with a keeper of its connections to the app.
func startChild(program string, args []string, grace time.Duration) (*exec.Cmd, *appwork.Keeper, error) {
	keeper, err := appwork.NewKeeper(grace)
	if err != nil {
		return nil, nil, err
	}
	defer keeper.Sidecar.Close()
	child := exec.Command(program, append(slices.Clone(args), "--supervise=false")...)
	child.Stdin, child.Stdout, child.Stderr, child.ExtraFiles = os.Stdin, os.Stdout, os.Stderr, []*os.File{keeper.Sidecar}
	child.Env = append(os.Environ(), supervisorVariable+"=1")
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM} // a terminal signals this process alone
	return child, keeper, child.Start()
}

// supervisorVariable tells a child that its file 3 is a socket to its supervisor.
const supervisorVariable = "SUPERVISED_WORKER"

// supervisor returns the socket to the process that supervises this one, nil for none.
func supervisor() *os.File {
	if os.Getenv(supervisorVariable) == "" {
		return nil
	}
	os.Unsetenv(supervisorVariable)
	syscall.CloseOnExec(3)
	return os.NewFile(3, "supervisor")
}
