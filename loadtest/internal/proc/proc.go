//go:build linux

// Package proc starts processes on chosen cores, reads how much CPU time they
// have used, and stops them: those of a [Stage] all at once, whatever happens.
package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

	// Serves returns nil once it is ready, for a program that accepts connections
	// before. It is called again and again; nil for no wait.
	Serves func(context.Context) error
}

// Process is one that was started.
type Process struct {
	spec  Spec
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
	if err := p.await(ctx); err != nil {
		s.Stop(p, syscall.SIGKILL)
		return nil, fmt.Errorf("proc: %s is not ready: %w\n%s", spec.Name, err, p.out.tail())
	}
	return p, nil
}

func (s *Stage) begin(spec Spec) (*Process, error) {
	log, err := os.OpenFile(s.log(spec), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("proc: %w", err)
	}
	p := &Process{spec: spec, cmd: exec.Command(spec.Program, spec.Args...), done: make(chan struct{})}
	p.out = &output{log: log, mark: spec.Ready, found: make(chan string, 1)}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	p.cmd.Env = append(os.Environ(), spec.Env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	p.cmd.WaitDelay = stopPatience
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		log.Close()
		return nil, errors.New("proc: the run has ended")
	}
	result := make(chan error)
	s.tasks <- func() { result <- startOn(p.cmd, spec.CPUs) }
	if err := <-result; err != nil {
		log.Close()
		return nil, fmt.Errorf("proc: starting %s: %w", spec.Name, err)
	}
	s.all = append(s.all, p)
	go func() {
		p.err = p.cmd.Wait()
		log.Close()
		close(p.done)
	}()
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

func (p *Process) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyPatience)
	defer cancel()
	if p.spec.Ready != "" {
		select {
		case p.ready = <-p.out.found:
		case <-p.done:
			return fmt.Errorf("it ended: %w", errors.Join(errEnded, p.err))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if p.spec.Dial == "" && p.spec.Serves == nil {
		return nil
	}
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		if p.answers(ctx) {
			return nil
		}
		select {
		case <-poll.C:
		case <-p.done:
			return fmt.Errorf("it ended: %w", errors.Join(errEnded, p.err))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// answers reports whether the process accepts connections and serves.
func (p *Process) answers(ctx context.Context) bool {
	if p.spec.Dial != "" {
		c, err := net.Dial("tcp", p.spec.Dial)
		if err != nil {
			return false
		}
		c.Close()
	}
	return p.spec.Serves == nil || p.spec.Serves(ctx) == nil
}

// Run starts a process that ends by itself, and returns the line that held
// Spec.Ready.
func (s *Stage) Run(ctx context.Context, spec Spec) (string, error) {
	p, err := s.begin(spec)
	if err != nil {
		return "", err
	}
	defer s.Forget(p)
	if err := p.Await(ctx); err != nil {
		p.kill()
		<-p.done
		return "", err
	}
	select {
	case line := <-p.out.found:
		return line, p.err
	default:
		return "", fmt.Errorf("proc: %s has not printed %q: %v\n%s", spec.Name, spec.Ready, p.err, p.out.tail())
	}
}

func (s *Stage) log(spec Spec) string { return filepath.Join(s.dir, spec.Name+".log") }

// Name is what the process was started as.
func (p *Process) Name() string { return p.spec.Name }

// Spec is what the process was started with.
func (p *Process) Spec() Spec { return p.spec }

// ReadyLine returns the line that held Spec.Ready.
func (p *Process) ReadyLine() string { return p.ready }

// Signal sends a signal; to a process that has ended it does nothing.
func (p *Process) Signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("proc: signal %v to %s: %w", sig, p.spec.Name, err)
	}
	return nil
}

// Ended is nil while the process runs.
func (p *Process) Ended() error {
	select {
	case <-p.done:
		return fmt.Errorf("proc: %s: %w\n%s", p.spec.Name, errors.Join(errEnded, p.err), p.out.tail())
	default:
		return nil
	}
}

var errEnded = errors.New("it ended by itself")

// Await waits until the process has ended, or ctx has.
func (p *Process) Await(ctx context.Context) error {
	select {
	case <-p.done:
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
// returns the last lines that it printed. SIGKILL goes to its children, too.
func (s *Stage) Stop(p *Process, how syscall.Signal) string {
	if how == syscall.SIGKILL {
		p.kill()
	} else {
		_ = p.Signal(how) // what it does not end by, it is killed after
	}
	p.stop()
	s.Forget(p)
	return p.out.tail()
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
			_ = p.Signal(syscall.SIGCONT) // fails if it has ended
			_ = p.Signal(syscall.SIGTERM)
			p.stop()
		})
	}
	stopping.Wait()
	close(s.tasks)
}

// stop waits for the end of the process that was asked for, and leaves nothing
// of its group.
func (p *Process) stop() {
	select {
	case <-p.done:
	case <-time.After(stopPatience):
	}
	p.kill() // nobody may be left
	<-p.done
}

// kill ends the process's group.
func (p *Process) kill() { _ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) } // fails if it has ended

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

// maxLine bounds what is kept of a line without an end.
const maxLine = 64 << 10

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.part = append(o.part, b...)
	for {
		line, rest, ok := bytes.Cut(o.part, []byte("\n"))
		if !ok {
			break
		}
		o.line(string(line))
		o.part = append([]byte(nil), rest...)
	}
	if len(o.part) > maxLine {
		o.part = nil
	}
	return o.log.Write(b)
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

// FreeAddr returns an address of this machine that nobody listens on. Its port is
// below those that the kernel gives to connections by itself, lest one of these
// has it by the time that somebody listens there.
func FreeAddr() (addr string, err error) {
	for range 100 {
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000))); err == nil {
			defer l.Close()
			return l.Addr().String(), nil
		}
	}
	return "", fmt.Errorf("proc: no free port: %w", err)
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
