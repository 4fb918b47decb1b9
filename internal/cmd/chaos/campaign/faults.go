package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/keyway-go/keyway/internal/cmd/chaos/clock"
	"github.com/keyway-go/keyway/internal/cmd/chaos/fabric"
	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// action carries a fault out.
type action func(ctx context.Context, c *cast, f *fault) error

// onProgram plays a fault on the program of its host.
func onProgram(with func(ctx context.Context, c *cast, f *fault, p *program) error) action {
	return func(ctx context.Context, c *cast, f *fault) error {
		all := slices.Concat(c.workers, c.routers)
		i := slices.IndexFunc(all, func(p *program) bool { return p.Name == f.host })
		return with(ctx, c, f, all[i])
	}
}

// onLeader plays a fault on the node that leads the store.
func onLeader(with func(ctx context.Context, c *cast, f *fault, n *trial.Node) error) action {
	return func(ctx context.Context, c *cast, f *fault) error {
		n, err := c.store.Leader(ctx)
		if err != nil {
			return err
		}
		f.process = n.Name
		return with(ctx, c, f, n)
	}
}

// hold lets a fault last. It ends early with ctx.
func (f *fault) hold(ctx context.Context) { trial.Sleep(ctx, f.lasts) }

func killProgram(ctx context.Context, c *cast, f *fault, p *program) error {
	l, err := p.Kill()
	if err != nil {
		return err
	}
	f.process = l.Label
	f.broke = c.observer.Now()
	f.hold(ctx)
	return p.start(context.WithoutCancel(ctx))
}

func pauseProgram(ctx context.Context, c *cast, f *fault, p *program) error {
	l, err := p.Alive()
	if err != nil {
		return err
	}
	f.process = l.Label
	if err := l.Pause(); err != nil {
		return err
	}
	f.hold(ctx)
	return l.Resume()
}

func restartProgram(ctx context.Context, c *cast, f *fault, p *program) error {
	if err := p.Stop(); err != nil {
		return err
	}
	f.hold(ctx)
	return p.start(context.WithoutCancel(ctx))
}

// squeeze lets a worker run with so little memory that it collects garbage all
// the time.
func squeeze(ctx context.Context, c *cast, f *fault, p *program) error {
	p.limit.Store("12MiB")
	err := restartProgram(ctx, c, f, p)
	f.hold(ctx)
	p.limit.Store("off")
	return errors.Join(err, p.Stop(), p.start(context.WithoutCancel(ctx)))
}

// upgrade restarts everything, one after the other: followers of the store, its leader after
// another one has taken its place, Sentinels, workers and routers.
func upgrade(ctx context.Context, c *cast, f *fault, old *trial.Node) error {
	ctx = context.WithoutCancel(ctx)
	renew := func(n *trial.Node) error {
		for _, d := range n.Daemons() {
			d.End(syscall.SIGTERM)
		}
		if err := n.Start(); err != nil {
			return err
		}
		return trial.Await(ctx, "all nodes follow after "+n.Name+" was upgraded", c.store.Whole)
	}
	for _, n := range c.store.Nodes {
		if n != old {
			if err := renew(n); err != nil {
				return err
			}
		}
	}
	if c.cfg.Store == overRedis { // etcd's leader passes its place on when it ends
		if err := switchMaster(ctx, c, f, old); err != nil {
			return err
		}
	}
	if err := renew(old); err != nil {
		return err
	}
	for _, p := range slices.Concat(c.workers, c.routers) {
		if err := errors.Join(p.Stop(), p.start(ctx)); err != nil {
			return err
		}
		trial.Sleep(ctx, time.Second)
	}
	return nil
}

func killLeader(ctx context.Context, c *cast, f *fault, n *trial.Node) error {
	n.Server.End(syscall.SIGKILL)
	f.hold(ctx)
	return c.back(ctx, n)
}

// back starts a node's server again and waits until all is as before. A server
// that does not take its append-only file gets it mended, as an operator would.
func (c *cast) back(ctx context.Context, n *trial.Node) error {
	if !n.Server.Runs() {
		if err := n.Server.Start(); err != nil {
			return err
		}
	}
	return trial.Await(context.WithoutCancel(ctx), "the store is whole after "+n.Name+" is back", func() bool {
		if !n.Server.Runs() {
			if c.cfg.Store == overRedis {
				mend(n)
			}
			_ = n.Server.Start() // or the next time
		}
		return c.store.Whole()
	})
}

func pauseLeader(ctx context.Context, c *cast, f *fault, n *trial.Node) error {
	n.Server.Signal(syscall.SIGSTOP)
	f.hold(ctx)
	n.Server.Signal(syscall.SIGCONT)
	return c.back(ctx, n)
}

// loseWrites cuts the replicas off from the master, which goes on acknowledging
// writes for a moment, and kills it.
func loseWrites(ctx context.Context, c *cast, f *fault, n *trial.Node) error {
	heal := c.apply(pairs([]string{n.Name}, c.names("r", n.Name), bothWays), fabric.Rule{Cut: true})
	trial.Sleep(ctx, time.Second+time.Duration(f.amount*float64(time.Second)/2))
	n.Server.End(syscall.SIGKILL)
	heal()
	f.hold(ctx)
	return c.back(ctx, n)
}

func switchMaster(ctx context.Context, c *cast, _ *fault, old *trial.Node) error {
	return errors.Join(trial.Await(ctx, "Sentinels let another master take over", func() bool {
		old.Ask(old.Beside, "sentinel", "failover", trial.MasterName)
		now := c.store.Elected()
		return now != nil && now != old
	}), trial.Await(context.WithoutCancel(ctx), "the new master has all replicas", c.store.Whole))
}

func killFollower(ctx context.Context, c *cast, f *fault, leader *trial.Node) error {
	names := c.names("r", leader.Name)
	f.process = names[int(f.amount*float64(len(names)))]
	for _, n := range c.store.Nodes {
		if n.Name == f.process {
			n.Server.End(syscall.SIGKILL)
			f.hold(ctx)
			return c.back(ctx, n)
		}
	}
	return nil
}

func killSentinel(ctx context.Context, c *cast, f *fault) error {
	for _, n := range c.store.Nodes {
		if n.Name == f.host {
			n.Sentinel.End(syscall.SIGKILL)
			f.hold(ctx)
			return n.Sentinel.Start()
		}
	}
	return nil
}

// cutFrom cuts the host off from one host of those letters, or from all.
func cutFrom(letters string, one bool) action {
	return func(ctx context.Context, c *cast, f *fault) error {
		far := c.names(letters, f.host)
		if one {
			far = far[int(f.amount*float64(len(far))):][:1]
		}
		f.note = "from " + strings.Join(far, ",")
		defer c.apply(pairs([]string{f.host}, far, f.way), fabric.Rule{Cut: true})()
		f.hold(ctx)
		return nil
	}
}

func cutLeader(ctx context.Context, c *cast, f *fault, n *trial.Node) error {
	return c.cutGroup(ctx, f, n, n.Name)
}

// cutLeaderAndWorker leaves a worker alone with the store's leader. A Redis master acknowledges
// its writes as long as min-replicas-max-lag lets it.
func cutLeaderAndWorker(ctx context.Context, c *cast, f *fault) error {
	n, err := c.store.Leader(ctx)
	if err != nil {
		return err
	}
	f.way = bothWays
	f.note = "with leader " + n.Name
	return c.cutGroup(ctx, f, n, n.Name, f.host)
}

func (c *cast) cutGroup(ctx context.Context, f *fault, n *trial.Node, near ...string) error {
	heal := c.apply(pairs(near, c.names("rpwc", near...), f.way), fabric.Rule{Cut: true})
	f.hold(ctx)
	heal()
	return c.back(ctx, n)
}

// trouble makes the network of a host bad, in both directions.
func trouble(ctx context.Context, c *cast, f *fault) error {
	worst := map[string]fabric.Rule{
		"delay":     {Delay: 30 * time.Millisecond, Jitter: 20 * time.Millisecond},
		"loss":      {Loss: 0.04},
		"reorder":   {Reorder: 0.1, Duplicate: 0.1, Jitter: 5 * time.Millisecond},
		"bandwidth": {Rate: 2 << 20, Queue: 128 << 10},
	}[f.kind.name]
	share := 0.3 + 0.7*f.amount
	r := fabric.Rule{
		Delay: scale(worst.Delay, share), Jitter: scale(worst.Jitter, share),
		Loss: worst.Loss * share, Reorder: worst.Reorder * share, Duplicate: worst.Duplicate * share, Queue: worst.Queue,
	}
	if worst.Rate > 0 {
		r.Rate = int(float64(worst.Rate) * (1.1 - share))
	}
	f.note = fmt.Sprintf("%+v", r)
	defer c.apply(pairs([]string{f.host}, c.names("rpwc", f.host), bothWays), r)()
	f.hold(ctx)
	return nil
}

func scale(d time.Duration, by float64) time.Duration { return time.Duration(float64(d) * by) }

// step sets a wall clock ahead or back by up to three TTLs, and right again.
func (f *fault) step(ctx context.Context, c *cast, wall *clock.Clock) {
	by := scale(6*c.cfg.TTL, f.amount-0.5).Round(time.Millisecond)
	f.note = by.String()
	wall.Step(by)
	f.hold(ctx)
	wall.Step(-by)
}

func stepClock(ctx context.Context, c *cast, f *fault, p *program) error {
	f.step(ctx, c, c.clocks[p.Name])
	return nil
}

func stepRedis(ctx context.Context, c *cast, f *fault, n *trial.Node) error {
	f.step(ctx, c, c.clocks[n.Name])
	return trial.Await(context.WithoutCancel(ctx), "all replicas follow", c.store.Whole)
}

// rate lets the clocks of a host run slower or faster: by up to 2 %, or beyond the
// margin by 10 to 60 %.
func (f *fault) rate(ctx context.Context, clocks *clock.Clock) {
	by := 0.04*f.amount - 0.02
	if f.kind.beyond {
		by = f.amount - 0.5 + math.Copysign(0.1, f.amount-0.5)
	}
	f.note = fmt.Sprintf("%+.1f %%", 100*by)
	clocks.Rate(1 + by)
	f.hold(ctx)
	clocks.Rate(1)
}

func slowClock(ctx context.Context, c *cast, f *fault, p *program) error {
	if l, err := p.Alive(); err == nil {
		f.process = l.Label
	}
	f.rate(ctx, c.clocks[p.Name])
	return nil
}

func slowRedis(ctx context.Context, c *cast, f *fault, n *trial.Node) error {
	f.rate(ctx, c.clocks[n.Name])
	return nil
}

// fill keeps the disk of a directory full for a while.
func (f *fault) fill(ctx context.Context, dir string) error {
	name := filepath.Join(dir, "filler")
	out, err := os.Create(name)
	if err != nil {
		return err
	}
	defer out.Close()
	for block := make([]byte, 64<<10); err == nil; {
		_, err = out.Write(block)
	}
	if errors.Is(err, syscall.ENOSPC) {
		f.hold(ctx)
		err = nil
	}
	return errors.Join(err, os.Remove(name))
}

func fillRedis(ctx context.Context, c *cast, f *fault, n *trial.Node) error {
	return errors.Join(f.fill(ctx, n.Data), c.back(ctx, n))
}

func fillBodies(ctx context.Context, c *cast, f *fault) error {
	return f.fill(ctx, filepath.Join(c.dir, f.host, "bodies"))
}

// boundRedis leaves the master no memory for more.
func boundRedis(ctx context.Context, c *cast, f *fault, n *trial.Node) error {
	for _, bytes := range []string{"1", "0"} { // 0 is no bound
		if answer := n.Ask(n.Addr, "config", "set", "maxmemory", bytes); answer != "OK" {
			return fmt.Errorf("%s is asked to set maxmemory, and answers %q", n.Name, answer)
		}
		if bytes == "1" {
			f.hold(ctx)
		}
	}
	return nil
}
