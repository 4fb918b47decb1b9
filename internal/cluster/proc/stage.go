package proc

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Stage holds the processes of a run, and ends them together.
type Stage struct {
	Dir      string                // of the logs of those whose Spec has none, which are named after them
	Patience time.Duration         // for each to be ready; a minute by default
	Run      func(*exec.Cmd) error // as Spec.Run, for processes that have none; may be nil

	mu    sync.Mutex // guards what follows
	all   []*Process // that are to run
	ended bool
}

// stopPatience is how long processes may take to end.
const stopPatience = 3 * time.Second

// Start starts a process and waits until it is ready.
func (s *Stage) Start(ctx context.Context, spec Spec) (*Process, error) {
	if s.Patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.Patience)
		defer cancel()
	}
	p, err := s.begin(spec)
	if err != nil {
		return nil, err
	}
	if err := p.AwaitReady(ctx); err != nil {
		s.mu.Lock()
		s.all = slices.DeleteFunc(s.all, func(o *Process) bool { return o == p })
		s.mu.Unlock()
		p.KillGroup()
		return nil, err
	}
	return p, nil
}

func (s *Stage) begin(spec Spec) (*Process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, errors.New("the run has ended")
	}
	if spec.Log == "" {
		spec.Log = filepath.Join(s.Dir, spec.Name+".log")
	}
	if spec.Run == nil {
		spec.Run = s.Run
	}
	p, err := Begin(spec)
	if err == nil {
		s.all = append(s.all, p)
	}
	return p, err
}

// Running returns the processes that run.
func (s *Stage) Running() []*Process {
	return s.those(func(p *Process) bool { return p.Ended() == nil })
}

// Dead returns the processes that have ended by themselves.
func (s *Stage) Dead() []*Process { return s.those(func(p *Process) bool { return p.Ended() != nil }) }

func (s *Stage) those(are func(*Process) bool) (list []*Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.all {
		if are(p) {
			list = append(list, p)
		}
	}
	return list
}

// Forget no longer minds that a process ends. One that has ended by itself stays dead.
func (s *Stage) Forget(p *Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(o *Process) bool { return o == p && p.Ended() == nil })
}

// Stop ends a process with a signal, or by force if that takes too long. Nothing of its group is left.
func (s *Stage) Stop(p *Process, how syscall.Signal) {
	s.Forget(p)
	stop(p, how)
}

func stop(p *Process, how syscall.Signal) {
	ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()
	_ = p.End(ctx, how) // what it does not end by, it is killed after
	p.KillGroup()
}

// Close stops all processes and waits for their ends. None starts any more.
func (s *Stage) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	var stopping sync.WaitGroup
	for _, p := range s.all {
		stopping.Go(func() {
			_ = p.Resume() // fails if it has ended
			stop(p, syscall.SIGTERM)
		})
	}
	stopping.Wait()
	s.all = nil
}
