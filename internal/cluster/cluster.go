// Package cluster builds Keyway's programs and runs them as processes on this
// machine, for trying Keyway out, for tests and for the load test.
package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

const module = "github.com/keyway-go/keyway"

// Build compiles cmd/router and cmd/worker into dir: of the Keyway in whose
// tree the working directory lies, be it in a nested module.
func Build(ctx context.Context, dir string, flags ...string) (Programs, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Programs{}, fmt.Errorf("cluster: %w", err)
	}
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module)
	root, err := list.Output()
	if err != nil {
		return Programs{}, fmt.Errorf("cluster: looking for the module %s: %w", module, err)
	}
	args := append([]string{"build", "-o", dir + string(filepath.Separator)}, flags...)
	args = append(args, module+"/cmd/router", module+"/cmd/worker")
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = strings.TrimSpace(string(root))
	if out, err := cmd.CombinedOutput(); err != nil {
		return Programs{}, fmt.Errorf("cluster: go build: %w\n%s", err, out)
	}
	return Programs{Router: filepath.Join(dir, "router"), Worker: filepath.Join(dir, "worker")}, nil
}

// Programs are the paths of the built programs.
type Programs struct{ Router, Worker string }

// Process is a running router or worker.
type Process struct {
	Name   string
	Listen string // host:port that takes requests
	Admin  string // host:port of its admin server; may be empty
	Gossip string // host:port

	cmd  *exec.Cmd
	done chan struct{}
	err  error // set before done is closed
}

// readyTimeout bounds how long a process may take until it prints its line, unless
// the context of its start has a deadline.
const readyTimeout = time.Minute

// Start starts program and waits until it has printed that it is ready: until ctx ends,
// and for 30 s if that has no deadline. What it prints goes to out, each line behind the name.
func Start(ctx context.Context, name, program string, out io.Writer, args ...string) (*Process, error) {
	p := &Process{Name: name, cmd: exec.Command(program, args...), done: make(chan struct{})}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	w := &lines{out: out, prefix: name + " | ", ready: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = w, w
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("cluster: starting %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, readyTimeout)
		defer cancel()
	}
	select {
	case <-w.ready:
	case <-p.done: // it may have printed the line all the same
	case <-ctx.Done():
		p.Kill()
		return nil, fmt.Errorf("cluster: %s is not ready: %w\n%s", name, ctx.Err(), w.tail())
	}
	m := w.addresses()
	if m == nil {
		return nil, fmt.Errorf("cluster: %s ended before it was ready: %v\n%s", name, p.cmd.ProcessState, w.tail())
	}
	p.Listen, p.Admin, p.Gossip = m[1], m[2], m[3]
	return p, nil
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

// Pause stops the process where it stands (SIGSTOP) until Resume.
func (p *Process) Pause() error { return p.Signal(syscall.SIGSTOP) }

// Resume ends a Pause.
func (p *Process) Resume() error { return p.Signal(syscall.SIGCONT) }

// Signal sends a signal; to a process that has ended it does nothing.
func (p *Process) Signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("cluster: signal %v to %s: %w", s, p.Name, err)
	}
	return nil
}

// Kill ends the process at once and waits for it.
func (p *Process) Kill() {
	_ = p.Signal(syscall.SIGKILL)
	<-p.done
}

// Stop asks the process to end and waits for it, killing it when ctx ends. It
// returns how the process ended.
func (p *Process) Stop(ctx context.Context) error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		p.Kill()
		return fmt.Errorf("cluster: %s had to be killed: %w", p.Name, ctx.Err())
	}
}

// readyLine is what cmd/router and cmd/worker print when they are ready, except for their app.
var readyLine = regexp.MustCompile(`(?:ready|waits for its app): requests (?:https?://)?([^ ,]+)[^,]*(?:, admin http://([^ ,]+))?, gossip ([^ ,]+)`)

// lines writes whole lines behind a prefix, keeps the last ones, and looks for
// the ready line.
type lines struct {
	out    io.Writer
	prefix string
	ready  chan struct{} // closed with the ready line

	mu    sync.Mutex
	part  []byte
	last  []string
	match []string // of the ready line
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.part = append(l.part, b...)
	for {
		line, rest, ok := bytes.Cut(l.part, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		l.line(string(line))
		l.part = append([]byte(nil), rest...)
	}
}

func (l *lines) line(s string) {
	if l.match == nil {
		if l.match = readyLine.FindStringSubmatch(s); l.match != nil {
			close(l.ready)
		}
	}
	l.last = append(l.last, s)
	if len(l.last) > 20 {
		l.last = l.last[1:]
	}
	if l.out != nil {
		_, _ = io.WriteString(l.out, l.prefix+s+"\n")
	}
}

// addresses returns the match of the ready line, nil if there was none.
func (l *lines) addresses() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.match
}

func (l *lines) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.last, "\n")
}

// LockedWriter makes writes from several processes safe.
func LockedWriter(w io.Writer) io.Writer { return &lockedWriter{w: w} }

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}
