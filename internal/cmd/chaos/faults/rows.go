package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// row is a fault.
type row struct {
	name, title string
	led         bool                              // for stores with a leader
	args        func(dir, worker string) []string // more of each worker; may be nil
	play        func(ctx context.Context, s *site) error
}

// rows are the faults by their names. Workers have no lock file by default: nobody can prove that they are dead.
var rows = []row{
	{name: "none", title: "nothing", play: func(ctx context.Context, s *site) error { return s.wait(ctx, 5*time.Second) }},
	{name: "kill", title: "worker killed (kill -9), alone", play: killWorker},
	{name: "kill-supervised", title: "worker killed, supervised", args: supervised, play: killChild},
	{name: "kill-neighbour", title: "worker killed, with neighbours on its host", args: witnessed, play: killWorker},
	{name: "machine", title: "worker's machine lost", play: loseMachine},
	{name: "deploy-worker", title: "one worker deployed", play: func(ctx context.Context, s *site) error { return s.deploy(ctx, s.Workers[:1]) }},
	{name: "deploy-workers", title: "all workers deployed, one by one", play: func(ctx context.Context, s *site) error { return s.deploy(ctx, s.Workers) }},
	{name: "deploy-routers", title: "all routers deployed, one by one", play: func(ctx context.Context, s *site) error { return s.deploy(ctx, s.Routers) }},
	{name: "store-leader", title: "store's leader killed", led: true, play: killLeader},
	{name: "store-machine", title: "machine of the store's leader lost", led: true, play: func(ctx context.Context, s *site) error { return s.freeze(ctx, true) }},
	{name: "store-minority", title: "store's minority cut off", led: true, play: func(ctx context.Context, s *site) error { return s.freeze(ctx, false) }},
	{name: "store-5s", title: "store gone for 5 s", play: func(ctx context.Context, s *site) error { return s.without(ctx, 5*time.Second, false) }},
	{name: "store-60s", title: "store gone for 60 s", play: func(ctx context.Context, s *site) error { return s.without(ctx, 60*time.Second, false) }},
	{name: "store-empty", title: "store restarted without its data", play: func(ctx context.Context, s *site) error { return s.without(ctx, 0, true) }},
	{name: "pause", title: "worker paused for 3 TTL", play: pauseWorker},
}

// lockFile returns the flags of a worker whose death can be proved.
func lockFile(dir, worker string) []string {
	return []string{"--lock-file", filepath.Join(dir, worker+".lock")}
}

func supervised(dir, worker string) []string { return append(lockFile(dir, worker), "--supervise") }

func witnessed(dir, worker string) []string {
	return append(lockFile(dir, worker), "--witness", filepath.Join(dir, "*.lock"))
}

func (s *site) wait(ctx context.Context, d time.Duration) error {
	trial.Sleep(ctx, d)
	return ctx.Err()
}

func killWorker(_ context.Context, s *site) error {
	_, err := s.Workers[0].Kill()
	return err
}

// loseMachine stops the first worker for good.
func loseMachine(_ context.Context, s *site) error {
	l, err := s.Workers[0].Alive()
	if err != nil {
		return err
	}
	return l.Pause()
}

// killChild kills the process that the first worker's process supervises.
func killChild(_ context.Context, s *site) error {
	l, err := s.Workers[0].Alive()
	if err != nil {
		return err
	}
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", l.Pid())) // of each of its threads
	if err != nil {
		return err
	}
	var children []string
	for _, list := range lists {
		text, _ := os.ReadFile(list) // nothing of a thread that has ended
		children = append(children, strings.Fields(string(text))...)
	}
	if len(children) != 1 {
		return fmt.Errorf("the supervisor has the children %q, want one", children)
	}
	child, err := strconv.Atoi(children[0])
	if err != nil {
		return err
	}
	return syscall.Kill(child, syscall.SIGKILL)
}

func (s *site) deploy(ctx context.Context, members []*trial.Program) error {
	for _, m := range members {
		if err := errors.Join(m.Stop(), m.Start(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// killLeader kills the store's leader. It comes back a TTL later.
func killLeader(ctx context.Context, s *site) error {
	n, err := s.node(ctx, true)
	if err != nil {
		return err
	}
	if _, err := n.Server.Kill(); err != nil {
		return err
	}
	err = s.wait(ctx, s.TTL+s.calm())
	return errors.Join(err, n.Server.Start(context.WithoutCancel(ctx)), s.wait(ctx, s.TTL+s.calm()))
}

// node returns the store's leader, or the last other node.
func (s *site) node(ctx context.Context, leader bool) (n *trial.Node, err error) {
	var elected *trial.Node
	err = trial.Await(ctx, "the store has a leader", func() bool { elected = s.Store.Elected(); return elected != nil && s.Store.Whole() })
	for _, other := range s.Store.Nodes {
		if (other == elected) == leader {
			n = other
		}
	}
	return n, err
}

// freeze stops all of the machine of the store's leader, or of another node. Nobody answers there, and no connection
// is closed. It goes on a TTL later.
func (s *site) freeze(ctx context.Context, leader bool) error {
	n, err := s.node(ctx, leader)
	if err != nil {
		return err
	}
	for _, p := range n.Programs() {
		p.Signal(syscall.SIGSTOP)
	}
	err = s.wait(ctx, s.TTL+s.calm())
	for _, p := range n.Programs() {
		p.Signal(syscall.SIGCONT)
	}
	return errors.Join(err, s.wait(ctx, s.TTL+s.calm()))
}

// without kills the whole store and starts it again after d, maybe without its data. It returns two TTLs later, when a
// quarantine is over.
func (s *site) without(ctx context.Context, d time.Duration, empty bool) error {
	play := s.RestartStore
	if empty {
		play = s.LoseStore
	}
	return errors.Join(play(ctx, &trial.Fault{Lasts: d}), s.wait(ctx, 2*s.TTL))
}

func pauseWorker(ctx context.Context, s *site) error {
	f := &trial.Fault{Kind: &trial.Kind{Late: true}, Host: s.Workers[0].Name, Lasts: 3 * s.TTL, Begin: s.Observer.Now()}
	err := s.Pause(ctx, f)
	f.End = s.Observer.Now()
	s.paused = f
	return errors.Join(err, s.wait(ctx, 2*time.Second))
}
