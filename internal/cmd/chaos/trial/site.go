package trial

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/internal/cluster/proc"
)

// Site is a cluster under trial: a store, routers, and workers as sidecars of the observer. Make one with [NewSite].
type Site struct {
	Programs cluster.Programs
	TTL      time.Duration                      // of sessions
	Args     []string                           // of all members, besides the store and the TTL
	TCP      bool                               // the observer listens by TCP, not at sockets in Stage.Dir
	Adapt    func(name string, spec *proc.Spec) // changes how a member starts; may be nil
	Store    *Store
	Observer *Observer
	Stage    *proc.Stage
	Routers  []*Program
	Workers  []*Program
	Later    []string // names of workers that do not run at first

	begun bool // all members have started once
}

// NewSite returns a site without members, whose logs and sockets are in dir. A worker whose name has died several times
// in a row stays off the ring for up to 10 TTLs.
func NewSite(dir string, ttl time.Duration) *Site {
	return &Site{TTL: ttl, Store: new(Store), Observer: NewObserver(), Stage: &proc.Stage{Dir: dir, Patience: 30*time.Second + 11*ttl}}
}

// AddRouter adds a router that does not run yet.
func (s *Site) AddRouter(name string, args ...string) {
	s.Routers = append(s.Routers, s.member(name, s.Programs.Router, func(string, int) ([]string, error) { return args, nil }))
}

// AddWorker adds a worker, which does not run so far. more returns further arguments of a process of it.
func (s *Site) AddWorker(name string, more func(label string) ([]string, error)) {
	s.Workers = append(s.Workers, s.member(name, s.Programs.Worker, func(label string, life int) ([]string, error) {
		network, addr := "unix", filepath.Join(s.Stage.Dir, fmt.Sprintf("%s-%d.sock", name, life))
		if s.TCP {
			network, addr = "tcp", "127.0.0.1:0"
		}
		app, err := s.Observer.Listen(label, network, addr)
		if err != nil {
			return nil, err
		}
		args, err := more(label)
		args = append(args, "--name", name, "--upstream", app)
		if !s.begun {
			args = append(args, "--new-cluster")
		}
		return args, err
	}))
}

func (s *Site) member(name, program string, more func(label string, life int) ([]string, error)) *Program {
	return &Program{Name: name, Stage: s.Stage, Spec: func(label string, life int) (proc.Spec, error) {
		args, err := more(label, life)
		args = slices.Concat([]string{"--store", s.Store.URL(), "--session-ttl", s.TTL.String()}, s.Args, args)
		spec := proc.Spec{Program: program, Args: args, Ready: cluster.ReadyLine}
		if s.Adapt != nil {
			s.Adapt(name, &spec)
		}
		return spec, err
	}}
}

// Members returns the workers and the routers.
func (s *Site) Members() []*Program { return slices.Concat(s.Workers, s.Routers) }

// Member returns the member of that name, which is there.
func (s *Site) Member(name string) *Program {
	all := s.Members()
	return all[slices.IndexFunc(all, func(p *Program) bool { return p.Name == name })]
}

// Start starts all members, and returns when requests are answered.
func (s *Site) Start(ctx context.Context, dial Dialer) error {
	first := slices.DeleteFunc(s.Members(), func(p *Program) bool { return slices.Contains(s.Later, p.Name) })
	if err := errors.Join(each(first, func(p *Program) error { return p.Start(ctx) })...); err != nil {
		return err
	}
	s.begun = true
	return WarmUp(ctx, dial)
}

// Stop has the workers leave that run, then the routers, and returns what did not go well.
func (s *Site) Stop() []error {
	s.Workers = slices.DeleteFunc(s.Workers, func(p *Program) bool { return !p.Runs() })
	return append(each(s.Workers, (*Program).Stop), each(s.Routers, (*Program).Stop)...)
}

// Close ends everything that still runs.
func (s *Site) Close() {
	s.Stage.Close()
	s.Store.Kill()
	s.Observer.Close()
}

// Kill kills the member that a fault hits, and starts it again when the fault is over.
func (s *Site) Kill(ctx context.Context, f *Fault) error {
	l, err := s.Member(f.Host).Kill()
	if err != nil {
		return err
	}
	f.Process, f.Broke = l.Name, s.Observer.Now()
	f.Hold(ctx)
	return s.Member(f.Host).Start(context.WithoutCancel(ctx))
}

// Pause stops the process of the member that a fault hits until the fault is over.
func (s *Site) Pause(ctx context.Context, f *Fault) error {
	l, err := s.Member(f.Host).Alive()
	if err != nil {
		return err
	}
	f.Process = l.Name
	if err := l.Pause(); err != nil {
		return err
	}
	f.Hold(ctx)
	return l.Resume()
}

// Restart has the member that a fault hits leave, and starts it again when the fault is over.
func (s *Site) Restart(ctx context.Context, f *Fault) error {
	p := s.Member(f.Host)
	if err := p.Stop(); err != nil {
		return err
	}
	f.Hold(ctx)
	return p.Start(context.WithoutCancel(ctx))
}

// Add starts a worker that does not run, and has it leave when the fault is over.
func (s *Site) Add(ctx context.Context, f *Fault) error {
	p := s.Member(f.Host)
	if err := p.Start(ctx); err != nil {
		return err
	}
	f.Hold(ctx)
	return p.Stop()
}

// RestartStore kills the store, and starts it again when the fault is over.
func (s *Site) RestartStore(ctx context.Context, f *Fault) error {
	s.Store.Kill()
	f.Hold(ctx)
	return s.Store.Start(context.WithoutCancel(ctx))
}

// LoseStore is RestartStore without the store's data.
func (s *Site) LoseStore(ctx context.Context, f *Fault) error {
	s.Store.Kill()
	f.Hold(ctx)
	return errors.Join(s.Store.Clear(), s.Store.Start(context.WithoutCancel(ctx)))
}
