// Package proc starts processes, waits until they are ready, and ends them.
package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Spec describes a process.
type Spec struct {
	Name    string
	Program string
	Args    []string
	Env     []string                    // beside this process's own
	CPUs    []int                       // cores it may use, by taskset; nil for all
	Log     string                      // file to which its output is appended; "" for none
	Stamp   func() string               // what stands before each line of Log; nil for nothing
	Out     io.Writer                   // what gets its lines, too, each behind the name; may be nil
	Run     func(*exec.Cmd) error       // starts it, such as in a network namespace; nil for one of this process's
	Ready   string                      // pattern of a line that it prints once it is ready; "" for no wait
	Dial    string                      // host:port that it accepts connections on once it is ready; "" for no wait
	Serves  func(context.Context) error // nil once it is ready, if it accepts connections before; called again and again
}

// readyTimeout bounds how long a process may take to be ready, unless a context has a deadline.
const readyTimeout = time.Minute

// Process is one that was started.
type Process struct {
	Spec

	cmd  *exec.Cmd
	out  *output
	done chan struct{}
	err  error // set before done is closed
}

// Start starts a process and waits until it is ready: until ctx ends, and for a minute if that has no deadline.
func Start(ctx context.Context, spec Spec) (*Process, error) {
	p, err := Begin(spec)
	if err != nil {
		return nil, err
	}
	if err := p.AwaitReady(ctx); err != nil {
		p.KillGroup()
		return nil, err
	}
	return p, nil
}

// Begin starts a process in a group of its own.
func Begin(spec Spec) (*Process, error) {
	program := append([]string{spec.Program}, spec.Args...)
	if spec.CPUs != nil {
		cores := strings.Trim(strings.ReplaceAll(fmt.Sprint(spec.CPUs), " ", ","), "[]")
		program = append([]string{"taskset", "-c", cores}, program...)
	}
	p := &Process{Spec: spec, cmd: exec.Command(program[0], program[1:]...), done: make(chan struct{})}
	p.out = &output{out: spec.Out, stamp: spec.Stamp, prefix: spec.Name + " | ", found: make(chan struct{})}
	if spec.Ready != "" {
		p.out.ready = regexp.MustCompile(spec.Ready)
	}
	if spec.Log != "" {
		log, err := os.OpenFile(spec.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, err
		}
		p.out.log = log
	}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	if p.cmd.Env = os.Environ(); spec.Env != nil {
		p.cmd.Env = append(p.cmd.Env, spec.Env...)
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	run := spec.Run
	if run == nil {
		run = (*exec.Cmd).Start
	}
	if err := run(p.cmd); err != nil {
		p.out.close()
		return nil, fmt.Errorf("starting %s: %w", spec.Name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		p.out.close()
		close(p.done)
	}()
	return p, nil
}

// AwaitReady waits until the process is ready.
func (p *Process) AwaitReady(ctx context.Context) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, readyTimeout)
		defer cancel()
	}
	ended := func() error {
		return fmt.Errorf("%s ended before it was ready: %w\n%s", p.Name, errors.Join(errEnded, p.err), p.Tail())
	}
	late := func() error {
		return fmt.Errorf("%s is not ready: %w\n%s", p.Name, context.Cause(ctx), p.Tail())
	}
	if p.Ready != "" {
		select {
		case <-p.out.found:
		case <-p.done: // it may have printed the line all the same
			if p.ReadyLine() == "" {
				return ended()
			}
		case <-ctx.Done():
			return late()
		}
	}
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for !p.serves(ctx) {
		select {
		case <-poll.C:
		case <-p.done:
			return ended()
		case <-ctx.Done():
			return late()
		}
	}
	return nil
}

// serves reports whether the process accepts connections and serves.
func (p *Process) serves(ctx context.Context) bool {
	if p.Dial != "" {
		c, err := net.Dial("tcp", p.Dial)
		if err != nil {
			return false
		}
		c.Close()
	}
	return p.Serves == nil || p.Serves(ctx) == nil
}

// ReadyLine returns the line that Spec.Ready matches, "" if there is none yet.
func (p *Process) ReadyLine() string {
	p.out.mu.Lock()
	defer p.out.mu.Unlock()
	return p.out.match
}

// Tail returns the last lines that the process has printed.
func (p *Process) Tail() string {
	p.out.mu.Lock()
	defer p.out.mu.Unlock()
	return strings.Join(p.out.last, "\n")
}

// Pid returns the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns how the process ended: nil for exit code 0. It waits for the end.
func (p *Process) Err() error {
	<-p.done
	return p.err
}

// Used returns the CPU time of a process that has ended, and of its children that it has waited for.
func (p *Process) Used() time.Duration {
	<-p.done
	return p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
}

// Ended is nil while the process runs.
func (p *Process) Ended() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s: %w\n%s", p.Name, errors.Join(errEnded, p.err), p.Tail())
	default:
		return nil
	}
}

var errEnded = errors.New("it ended by itself")

// Signal sends a signal; to a process that has ended it does nothing.
func (p *Process) Signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %v to %s: %w", s, p.Name, err)
	}
	return nil
}

// Pause stops the process where it stands (SIGSTOP) until Resume.
func (p *Process) Pause() error { return p.Signal(syscall.SIGSTOP) }

// Resume ends a Pause.
func (p *Process) Resume() error { return p.Signal(syscall.SIGCONT) }

// Kill ends the process at once and waits for it.
func (p *Process) Kill() {
	_ = p.Signal(syscall.SIGKILL)
	<-p.done
}

// KillGroup ends the process and its children at once and waits for it.
func (p *Process) KillGroup() {
	_ = syscall.Kill(-p.Pid(), syscall.SIGKILL) // fails if all have ended
	<-p.done
}

// Stop asks the process to end and waits for it, killing it when ctx ends. It
// returns how the process ended.
func (p *Process) Stop(ctx context.Context) error { return p.End(ctx, syscall.SIGTERM) }

// End is Stop with another signal than SIGTERM.
func (p *Process) End(ctx context.Context, s syscall.Signal) error {
	if err := p.Signal(s); err != nil {
		return err
	}
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		p.Kill()
		return fmt.Errorf("%s had to be killed: %w", p.Name, ctx.Err())
	}
}

// output takes what a process prints: it writes it to a log and, line by line, to out, keeps the last lines, and looks for
// the one that says that the process is ready.
type output struct {
	log    *os.File // nil for none
	stamp  func() string
	out    io.Writer
	prefix string
	ready  *regexp.Regexp // nil once it was found
	found  chan struct{}  // closed then

	mu    sync.Mutex
	part  []byte
	last  []string
	match string
}

// maxLine bounds what is kept of a line without an end.
const maxLine = 64 << 10

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.log != nil && o.stamp == nil {
		_, _ = o.log.Write(b)
	}
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
	return len(b), nil
}

func (o *output) line(s string) {
	if o.ready != nil && o.ready.MatchString(s) {
		o.match, o.ready = s, nil
		close(o.found)
	}
	if o.last = append(o.last, s); len(o.last) > 20 {
		o.last = o.last[1:]
	}
	if o.log != nil && o.stamp != nil {
		_, _ = io.WriteString(o.log, o.stamp()+s+"\n")
	}
	if o.out != nil {
		_, _ = io.WriteString(o.out, o.prefix+s+"\n")
	}
}

func (o *output) close() {
	if o.log != nil {
		o.log.Close()
	}
}

// Find returns the path of a program, which for root's ones may not be in
// $PATH; "" if there is none.
func Find(program string) string {
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/usr/local/sbin") {
		path := filepath.Join(dir, program)
		if info, err := os.Stat(path); err == nil && info.Mode()&0o111 != 0 && !info.IsDir() {
			return path
		}
	}
	return ""
}

const ports = 20_000 // that FreeAddr takes in turn

var (
	firstPort = rand.Uint32N(ports)
	given     atomic.Uint32
)

// FreeAddr returns an address of this machine that nobody listens on. It gives each port once in 20,000
// calls, since the program that got it may still be starting. The kernel gives connections higher ports,
// so that none of them takes it meanwhile.
func FreeAddr() (addr string, err error) {
	for range 100 {
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+(firstPort+given.Add(1))%ports)); err == nil {
			return l.Addr().String(), l.Close()
		}
	}
	return "", fmt.Errorf("no free port: %w", err)
}
