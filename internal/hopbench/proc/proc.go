//go:build linux

// Package proc starts processes on chosen cores, reads how much CPU time they
// have used, and stops them: those of a [Stage] all at once, whatever happens.
package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// How long processes may take.
const (
	readyPatience = 60 * time.Second
	stopPatience  = 3 * time.Second
)

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

// Spec describes a process.
type Spec struct {
	Name    string
	Program string
	Args    []string
	Env     []string // beside this process's own
	CPUs    []int    // cores it may use; nil for all
	Ready   string   // what a line of its output holds once it is ready; "" for no wait
	Dial    string   // host:port that it accepts connections on once it is ready; "" for no wait
}

// Process is one that was started.
type Process struct {
	name  string
	cmd   *exec.Cmd
	out   *output
	done  chan struct{}
	err   error // set before done is closed
	ready string
}

// Start starts a process and waits until it is ready.
func (s *Stage) Start(ctx context.Context, spec Spec) (*Process, error) {
	p, err := s.begin(spec)
	if err != nil {
		return nil, err
	}
	if err := p.await(ctx, spec); err != nil {
		return nil, fmt.Errorf("proc: %s is not ready: %w\n%s", spec.Name, err, p.out.tail())
	}
	return p, nil
}

func (s *Stage) begin(spec Spec) (*Process, error) {
	log, err := os.Create(s.log(spec))
	if err != nil {
		return nil, fmt.Errorf("proc: %w", err)
	}
	p := &Process{name: spec.Name, cmd: exec.Command(spec.Program, spec.Args...), done: make(chan struct{})}
	p.out = &output{log: log, mark: spec.Ready, found: make(chan string, 1)}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	p.cmd.Env = append(os.Environ(), spec.Env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := s.launch(p, spec.CPUs); err != nil {
		log.Close()
		return nil, err
	}
	return p, nil
}

func (s *Stage) launch(p *Process, cpus []int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return errors.New("proc: the run has ended")
	}
	result := make(chan error)
	s.tasks <- func() { result <- startOn(p.cmd, cpus) }
	if err := <-result; err != nil {
		return fmt.Errorf("proc: starting %s: %w", p.name, err)
	}
	s.all = append(s.all, p)
	go func() {
		p.err = p.cmd.Wait()
		p.out.log.Close()
		close(p.done)
	}()
	return nil
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

func (p *Process) await(ctx context.Context, spec Spec) error {
	ctx, cancel := context.WithTimeout(ctx, readyPatience)
	defer cancel()
	if spec.Ready != "" {
		select {
		case p.ready = <-p.out.found:
		case <-p.done:
			return fmt.Errorf("it ended: %w", p.err)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if spec.Dial == "" {
		return nil
	}
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		if c, err := net.Dial("tcp", spec.Dial); err == nil {
			return c.Close()
		}
		select {
		case <-poll.C:
		case <-p.done:
			return fmt.Errorf("it ended: %w", p.err)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Run starts a process that ends by itself, and returns the line that held
// Spec.Ready.
func (s *Stage) Run(ctx context.Context, spec Spec) (string, error) {
	p, err := s.finish(ctx, spec)
	if err != nil {
		return "", err
	}
	select {
	case line := <-p.out.found:
		return line, nil
	default:
		return "", fmt.Errorf("proc: %s has not printed %q\n%s", p.name, spec.Ready, p.out.tail())
	}
}

// Output starts a process that ends by itself, and returns what it printed.
func (s *Stage) Output(ctx context.Context, spec Spec) (string, error) {
	if _, err := s.finish(ctx, spec); err != nil {
		return "", err
	}
	out, err := os.ReadFile(s.log(spec))
	return string(out), err
}

func (s *Stage) finish(ctx context.Context, spec Spec) (*Process, error) {
	p, err := s.begin(spec)
	if err != nil {
		return nil, err
	}
	defer s.forget(p)
	select {
	case <-p.done:
	case <-ctx.Done():
		p.stop()
		return nil, context.Cause(ctx)
	}
	if p.err != nil {
		return nil, fmt.Errorf("proc: %s: %w\n%s", p.name, p.err, p.out.tail())
	}
	return p, nil
}

func (s *Stage) log(spec Spec) string { return filepath.Join(s.dir, spec.Name+".log") }

// Stop stops a process before the others, and returns the last lines that it
// printed.
func (s *Stage) Stop(p *Process, how syscall.Signal) string {
	_ = p.cmd.Process.Signal(how) // fails if it has ended
	select {
	case <-p.done:
	case <-time.After(stopPatience):
		p.stop()
	}
	s.forget(p)
	return p.out.tail()
}

func (s *Stage) forget(p *Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(o *Process) bool { return o == p })
}

// Name returns the name it was started with.
func (p *Process) Name() string { return p.name }

// ReadyLine returns the line that held Spec.Ready.
func (p *Process) ReadyLine() string { return p.ready }

// Ended returns how the process ended, or nil while it runs.
func (p *Process) Ended() error {
	select {
	case <-p.done:
		return fmt.Errorf("proc: %s ended by itself (%w)\n%s", p.name, errors.Join(errEnded, p.err), p.out.tail())
	default:
		return nil
	}
}

var errEnded = errors.New("it was meant to run")

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

// Close stops all processes and waits for their ends.
func (s *Stage) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.ended = true
	var wg sync.WaitGroup
	for _, p := range s.all {
		wg.Go(p.stop)
	}
	wg.Wait()
	close(s.tasks)
}

// stop ends the process with its children.
func (p *Process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(stopPatience):
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // its group, of which nobody may be left
	<-p.done
}

// output writes what a process prints to a log, keeps its end, and looks for
// the line that says that the process is ready.
type output struct {
	log   *os.File
	mark  string
	found chan string

	mu   sync.Mutex
	part []byte
	last []string
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.part = append(o.part, b...)
	for {
		line, rest, ok := bytes.Cut(o.part, []byte("\n"))
		if !ok {
			return o.log.Write(b)
		}
		o.line(string(line))
		o.part = append([]byte(nil), rest...)
	}
}

func (o *output) line(s string) {
	if o.mark != "" && strings.Contains(s, o.mark) {
		select {
		case o.found <- s:
		default:
		}
	}
	o.last = append(o.last, s)
	if len(o.last) > 20 {
		o.last = o.last[1:]
	}
}

func (o *output) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.last, "\n")
}

// FreeAddr returns an address of this machine that nobody listens on.
func FreeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("proc: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}
