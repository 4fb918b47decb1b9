//go:build linux

// Package proc starts processes on chosen cores, reads how much CPU time they
// have used, and stops them: those of a [Stage] all at once, whatever happens.
package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/keyway-go/keyway/internal/cluster/proc"
)

// stopPatience is how long processes may take to end.
const stopPatience = 3 * time.Second

// Spec describes a process. A [Stage] sets its Log and Run.
type Spec = proc.Spec

// Process is one that was started.
type Process struct{ *proc.Process }

// FreeAddr returns an address of this machine that nobody listens on.
func FreeAddr() (string, error) { return proc.FreeAddr() }

// Stage holds the processes of a run. Make one with [NewStage].
type Stage struct {
	dir   string // of the logs
	tasks chan func()

	mu    sync.Mutex
	all   []*Process
	ended bool
}

// NewStage returns a stage whose processes write their logs to dir. The caller
// must call [Stage.Close]. If this process is killed, the stage's processes
// get SIGTERM from the kernel.
func NewStage(dir string) *Stage {
	s := &Stage{dir: dir, tasks: make(chan func())}
	go s.starter()
	return s
}

// starter starts all processes, from one thread: the kernel gives a child the
// cores of the thread that started it, and ends it with that thread.
func (s *Stage) starter() {
	runtime.LockOSThread()
	for task := range s.tasks {
		task()
	}
}

// Start starts a process and waits until it is ready.
func (s *Stage) Start(ctx context.Context, spec Spec) (*Process, error) {
	p, err := s.begin(spec)
	if err != nil {
		return nil, err
	}
	if err := p.AwaitReady(ctx); err != nil {
		s.Stop(p, syscall.SIGKILL)
		return nil, fmt.Errorf("proc: %w", err)
	}
	return p, nil
}

func (s *Stage) begin(spec Spec) (*Process, error) {
	spec.Log = filepath.Join(s.dir, spec.Name+".log")
	spec.Run = func(cmd *exec.Cmd) error {
		cmd.SysProcAttr.Pdeathsig, cmd.WaitDelay = syscall.SIGTERM, stopPatience
		result := make(chan error)
		s.tasks <- func() { result <- startOn(cmd, spec.CPUs) }
		return <-result
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, errors.New("proc: the run has ended")
	}
	begun, err := proc.Begin(spec)
	if err != nil {
		return nil, fmt.Errorf("proc: %w", err)
	}
	p := &Process{begun}
	s.all = append(s.all, p)
	return p, nil
}

// startOn starts cmd on the cores; the thread keeps them only meanwhile.
func startOn(cmd *exec.Cmd, cpus []int) error {
	if cpus != nil {
		var before, set unix.CPUSet
		if err := unix.SchedGetaffinity(0, &before); err != nil {
			return err
		}
		for _, cpu := range cpus {
			set.Set(cpu)
		}
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			return err
		}
		defer unix.SchedSetaffinity(0, &before)
	}
	return cmd.Start()
}

// Run starts a process that ends by itself, and returns the line that Spec.Ready matches.
func (s *Stage) Run(ctx context.Context, spec Spec) (string, error) {
	p, err := s.begin(spec)
	if err != nil {
		return "", err
	}
	defer s.Forget(p)
	if err := p.Await(ctx); err != nil {
		p.KillGroup()
		return "", err
	}
	if p.Err() != nil || p.ReadyLine() == "" {
		return "", fmt.Errorf("proc: %s has not printed %q: %w\n%s", spec.Name, spec.Ready, p.Ended(), p.Tail())
	}
	return p.ReadyLine(), nil
}

// Await waits until the process has ended, or ctx has.
func (p *Process) Await(ctx context.Context) error {
	select {
	case <-p.Done():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Check returns an error if one of the processes has ended.
func (s *Stage) Check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.all {
		if err := p.Ended(); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends a process with a signal, or by force if that takes too long, and
// returns the last lines that it printed. Nothing of its group is left.
func (s *Stage) Stop(p *Process, how syscall.Signal) string {
	if how == syscall.SIGKILL {
		p.KillGroup()
	} else {
		p.stop(how)
	}
	s.Forget(p)
	return p.Tail()
}

// Forget no longer minds that the process ends.
func (s *Stage) Forget(p *Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(o *Process) bool { return o == p })
}

// Close stops all processes and waits for their ends.
func (s *Stage) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.ended = true
	var stopping sync.WaitGroup
	for _, p := range s.all {
		stopping.Go(func() {
			_ = p.Resume() // fails if it has ended
			p.stop(syscall.SIGTERM)
		})
	}
	stopping.Wait()
	close(s.tasks)
}

// stop ends the process by a signal, and leaves nothing of its group.
func (p *Process) stop(how syscall.Signal) {
	ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()
	_ = p.End(ctx, how) // what it does not end by, it is killed after
	p.KillGroup()
}

// Find returns the path of a program, which for root's ones may not be in
// $PATH; "" if there is none.
func Find(program string, dirs ...string) string {
	dirs = append(append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/usr/local/sbin"), dirs...)
	for _, dir := range dirs {
		path := filepath.Join(dir, program)
		if info, err := os.Stat(path); err == nil && info.Mode()&0o111 != 0 && !info.IsDir() {
			return path
		}
	}
	return ""
}

// enoughFiles are more than any measurement opens.
const enoughFiles = 1 << 16

// RaiseFileLimit lets this process and those that it starts have as many connections as the
// system allows. The runtime has raised its own limit already; only a call of Setrlimit lets
// children have it too.
func RaiseFileLimit() {
	limit := syscall.Rlimit{Cur: enoughFiles, Max: enoughFiles}
	if FileLimit() < enoughFiles && syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		return
	}
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		limit.Cur = min(limit.Max, enoughFiles)              // some databases take memory for each that there may be
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit) // else it stays as it is
	}
}

// FileLimit returns how many files a process may have open.
func FileLimit() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 1024
	}
	return min(limit.Cur, enoughFiles)
}
