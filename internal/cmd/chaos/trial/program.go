package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/keyway-go/keyway/internal/cluster/proc"
)

// Lives are the processes of a trial.
type Lives struct {
	Dir      string        // of their logs
	Patience time.Duration // for a process to be ready; a minute by default

	mu     sync.Mutex
	all    []*Life
	deaths []string
}

// Deaths says which processes have ended that were not meant to.
func (s *Lives) Deaths() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.deaths)
}

// Kill ends all processes that still run, with their children.
func (s *Lives) Kill() {
	s.mu.Lock()
	all := slices.Clone(s.all)
	s.mu.Unlock()
	for _, l := range all {
		l.meant.Store(true)
		l.KillGroup()
	}
}

// add adds a process, and notes if it ends by itself.
func (s *Lives) add(l *Life) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, l)
	go func() {
		if err := l.Err(); !l.meant.Load() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.deaths = append(s.deaths, fmt.Sprintf("%s ended by itself: %v (see %s)", l.Label, err, l.Log))
		}
	}()
}

// Program is a process that is started again and again.
type Program struct {
	Name  string
	Lives *Lives
	Spec  func(label string, life int) (proc.Spec, error) // of a life; its name and its log are set

	mu    sync.Mutex
	lives int
	now   *Life // nil while it is not meant to run
}

// Life is one process of a program.
type Life struct {
	*proc.Process
	Label string      // w2#1 is the first one of w2
	meant atomic.Bool // its end is
}

// Start starts the program and waits until it is ready.
func (p *Program) Start(ctx context.Context) error {
	p.mu.Lock()
	p.lives++
	life := p.lives
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(p.Lives.Patience, time.Minute))
	defer cancel()
	label := fmt.Sprintf("%s#%d", p.Name, life)
	spec, err := p.Spec(label, life)
	if err != nil {
		return err
	}
	spec.Name, spec.Log = label, filepath.Join(p.Lives.Dir, label+".log")
	started, err := proc.Start(ctx, spec)
	if err != nil {
		return err
	}
	l := &Life{Process: started, Label: label}
	p.Lives.add(l)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = l
	return nil
}

// Runs reports whether the program is meant to run.
func (p *Program) Runs() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now != nil
}

// Alive returns the present life.
func (p *Program) Alive() (*Life, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now == nil {
		return nil, fmt.Errorf("%s does not run", p.Name)
	}
	return p.now, nil
}

// End takes the present life away, which is meant to end.
func (p *Program) End() (*Life, error) {
	l, err := p.Alive()
	if err != nil {
		return nil, err
	}
	l.meant.Store(true)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = nil
	return l, nil
}

// Kill ends the present life by SIGKILL.
func (p *Program) Kill() (*Life, error) {
	l, err := p.End()
	if err == nil {
		l.Kill()
	}
	return l, err
}

// exitTimeout is a little more than a program's grace period.
const exitTimeout = 35 * time.Second

// Stop ends the present life by SIGTERM. It has to exit with 0.
func (p *Program) Stop() error {
	l, err := p.End()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), exitTimeout)
	defer cancel()
	if err := l.End(ctx, syscall.SIGTERM); err != nil {
		return fmt.Errorf("%s after SIGTERM: %w", l.Label, err)
	}
	return nil
}

// each calls do for all programs at once, and returns what did not go well.
func each(programs []*Program, do func(*Program) error) []error {
	errs := make([]error, len(programs))
	var wg sync.WaitGroup
	for i, p := range programs {
		wg.Go(func() { errs[i] = do(p) })
	}
	wg.Wait()
	return errs
}

// InDir calls f with a new directory for logs and data. Unless f fails, the directory is gone
// afterwards; else it says where that is, and the arguments that repeat the run.
func InDir(out io.Writer, name string, args []string, seed int64, f func(dir string) error) error {
	dir, err := os.MkdirTemp("", "keyway-"+name+"-")
	if err != nil {
		return err
	}
	if err := f(dir); err != nil {
		again := strings.Join(args, " ")
		if !strings.Contains(again, "-seed") {
			again += fmt.Sprint(" -seed ", seed)
		}
		fmt.Fprintf(out, "logs and data: %s\nagain: %s %s\n", dir, name, again)
		return err
	}
	return os.RemoveAll(dir)
}

// Turns returns what dials one of addresses after the other with each call, and the next one if it does not answer.
func Turns(addrs []string, dial func(ctx context.Context, addr string) (net.Conn, error)) Dialer {
	var turn atomic.Int64
	return func(ctx context.Context) (net.Conn, error) {
		first := int(turn.Add(1))
		var errs []error
		for i := range addrs {
			conn, err := dial(ctx, addrs[(first+i)%len(addrs)])
			if err == nil {
				return conn, nil
			}
			errs = append(errs, err)
		}
		return nil, errors.Join(errs...)
	}
}

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
