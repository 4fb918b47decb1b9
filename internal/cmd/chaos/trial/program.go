package trial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/keyway-go/keyway/internal/cluster/proc"
)

// Program is a process that is started again and again.
type Program struct {
	Name  string
	Stage *proc.Stage
	Spec  func(label string, life int) (proc.Spec, error) // of a life, whose name is the label: w2#1 is the first one of w2

	mu    sync.Mutex
	lives int
	now   *proc.Process // nil while it is not meant to run
}

// Start starts the program and waits until it is ready.
func (p *Program) Start(ctx context.Context) error {
	p.mu.Lock()
	p.lives++
	life := p.lives
	p.mu.Unlock()
	label := fmt.Sprintf("%s#%d", p.Name, life)
	spec, err := p.Spec(label, life)
	if err != nil {
		return err
	}
	spec.Name = label
	l, err := p.Stage.Start(ctx, spec)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = l
	return nil
}

// Runs reports whether the program is meant to run, and does.
func (p *Program) Runs() bool {
	l, err := p.Alive()
	return err == nil && l.Ended() == nil
}

// Alive returns the present life.
func (p *Program) Alive() (*proc.Process, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now == nil {
		return nil, fmt.Errorf("%s does not run", p.Name)
	}
	return p.now, nil
}

// End takes the present life away, which is meant to end.
func (p *Program) End() (*proc.Process, error) {
	l, err := p.Alive()
	if err != nil {
		return nil, err
	}
	p.Stage.Forget(l)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = nil
	return l, nil
}

// Kill ends the present life by SIGKILL.
func (p *Program) Kill() (*proc.Process, error) {
	l, err := p.End()
	if err == nil {
		l.Kill()
	}
	return l, err
}

// Signal sends a signal to the present life, if there is one.
func (p *Program) Signal(s syscall.Signal) {
	if l, err := p.Alive(); err == nil {
		_ = l.Signal(s) // it may have ended
	}
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
		return fmt.Errorf("%s after SIGTERM: %w", l.Name, err)
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
