package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/keyway-go/keyway/internal/cmd/chaos/fabric"
	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// hit returns the program on the fault's host.
func (f *fault) hit(c *cast) (*program, error) {
	for _, p := range append(c.workers[:len(c.workers):len(c.workers)], c.routers...) {
		if p.Name == f.host {
			return p, nil
		}
	}
	return nil, fmt.Errorf("no program on host %q", f.host)
}

// hold lets a fault last. It ends early with ctx.
func (f *fault) hold(ctx context.Context) { trial.Sleep(ctx, f.lasts) }

func killProgram(ctx context.Context, c *cast, f *fault) error {
	p, err := f.hit(c)
	if err != nil {
		return err
	}
	l, err := p.Kill()
	if err != nil {
		return err
	}
	f.process = l.Label
	f.broke = c.observer.Now()
	f.hold(ctx)
	return p.start(context.WithoutCancel(ctx))
}

func pauseProgram(ctx context.Context, c *cast, f *fault) error {
	p, err := f.hit(c)
	if err != nil {
		return err
	}
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

func restartProgram(ctx context.Context, c *cast, f *fault) error {
	p, err := f.hit(c)
	if err != nil {
		return err
	}
	if err := p.Stop(); err != nil {
		return err
	}
	f.hold(ctx)
	return p.start(context.WithoutCancel(ctx))
}

// squeeze lets a worker run with so little memory that it collects garbage all
// the time.
func squeeze(ctx context.Context, c *cast, f *fault) error {
	p, err := f.hit(c)
	if err != nil {
		return err
	}
	p.limit.Store("12MiB")
	err = restartProgram(ctx, c, f)
	f.hold(ctx)
	p.limit.Store("off")
	return errors.Join(err, p.Stop(), p.start(context.WithoutCancel(ctx)))
}

// upgrade restarts everything, one after the other: followers of the store, its leader after
// another one has taken its place, Sentinels, workers and routers.
func upgrade(ctx context.Context, c *cast, f *fault) error {
	ctx = context.WithoutCancel(ctx)
	old, err := c.leader(ctx)
	if err != nil {
		return err
	}
	renew := func(n *node) error {
		for _, d := range n.daemons() {
			d.End(syscall.SIGTERM)
		}
		for _, d := range n.daemons() {
			if err := d.Start(); err != nil {
				return err
			}
		}
		return trial.Await(ctx, "all nodes follow after "+n.name+" was upgraded", c.whole)
	}
	for _, n := range c.nodes {
		if n != old {
			if err := renew(n); err != nil {
				return err
			}
		}
	}
	if c.cfg.Store == overRedis { // etcd's leader passes its place on when it ends
		if err := switchMaster(ctx, c, f); err != nil {
			return err
		}
	}
	if err := renew(old); err != nil {
		return err
	}
	for _, p := range append(c.workers[:len(c.workers):len(c.workers)], c.routers...) {
		if err := errors.Join(p.Stop(), p.start(ctx)); err != nil {
			return err
		}
		trial.Sleep(ctx, time.Second)
	}
	return nil
}

func killLeader(ctx context.Context, c *cast, f *fault) error {
	n, err := c.leader(ctx)
	if err != nil {
		return err
	}
	f.process = n.name
	n.server.End(syscall.SIGKILL)
	f.hold(ctx)
	return c.back(ctx, n)
}

// back starts a node's server again and waits until all is as before. A server
// that does not take its append-only file gets it mended, as an operator would.
func (c *cast) back(ctx context.Context, n *node) error {
	if !n.server.Runs() {
		if err := n.server.Start(); err != nil {
			return err
		}
	}
	return trial.Await(context.WithoutCancel(ctx), "the store is whole after "+n.name+" is back", func() bool {
		if !n.server.Runs() {
			if c.cfg.Store == overRedis {
				n.mend()
			}
			_ = n.server.Start() // or the next time
		}
		return c.whole()
	})
}

func pauseLeader(ctx context.Context, c *cast, f *fault) error {
	n, err := c.leader(ctx)
	if err != nil {
		return err
	}
	f.process = n.name
	n.server.Signal(syscall.SIGSTOP)
	f.hold(ctx)
	n.server.Signal(syscall.SIGCONT)
	return c.back(ctx, n)
}

// loseWrites cuts the replicas off from the master, which goes on acknowledging
// writes for a moment, and kills it.
func loseWrites(ctx context.Context, c *cast, f *fault) error {
	n, err := c.leader(ctx)
	if err != nil {
		return err
	}
	f.process = n.name
	heal := c.apply(pairs([]string{n.name}, c.others(n), bothWays), fabric.Rule{Cut: true})
	trial.Sleep(ctx, time.Second+time.Duration(f.amount*float64(time.Second)/2))
	n.server.End(syscall.SIGKILL)
	heal()
	f.hold(ctx)
	return c.back(ctx, n)
}

func (c *cast) others(n *node) (names []string) {
	for _, name := range c.names("r") {
		if name != n.name {
			names = append(names, name)
		}
	}
	return names
}

func switchMaster(ctx context.Context, c *cast, f *fault) error {
	old, err := c.leader(ctx)
	if err != nil {
		return err
	}
	f.process = old.name
	return errors.Join(trial.Await(ctx, "Sentinels let another master take over", func() bool {
		_, _ = old.cli(sentinelPort, "sentinel", "failover", masterName)
		now := c.elected()
		return now != nil && now != old
	}), trial.Await(context.WithoutCancel(ctx), "the new master has all replicas", c.whole))
}

func killFollower(ctx context.Context, c *cast, f *fault) error {
	m, err := c.leader(ctx)
	if err != nil {
		return err
	}
	names := c.others(m)
	f.process = names[int(f.amount*float64(len(names)))]
	for _, n := range c.nodes {
		if n.name == f.process {
			n.server.End(syscall.SIGKILL)
			f.hold(ctx)
			return c.back(ctx, n)
		}
	}
	return nil
}

func killSentinel(ctx context.Context, c *cast, f *fault) error {
	for _, n := range c.nodes {
		if n.name == f.host {
			n.sentinel.End(syscall.SIGKILL)
			f.hold(ctx)
			return n.sentinel.Start()
		}
	}
	return nil
}

// cutFrom cuts the host off from one host of those letters, or from all.
func cutFrom(letters string, one bool) func(ctx context.Context, c *cast, f *fault) error {
	return func(ctx context.Context, c *cast, f *fault) error {
		var far []string
		for _, name := range c.names(letters) {
			if name != f.host {
				far = append(far, name)
			}
		}
		if one {
			far = far[int(f.amount*float64(len(far))):][:1]
		}
		f.note = "from " + strings.Join(far, ",")
		defer c.apply(pairs([]string{f.host}, far, f.way), fabric.Rule{Cut: true})()
		f.hold(ctx)
		return nil
	}
}

func cutLeader(ctx context.Context, c *cast, f *fault) error {
	n, err := c.leader(ctx)
	if err != nil {
		return err
	}
	f.process = n.name
	return c.cutGroup(ctx, f, n, []string{n.name})
}

// cutLeaderAndWorker leaves a worker alone with the store's leader. A Redis master acknowledges
// its writes as long as min-replicas-max-lag lets it.
func cutLeaderAndWorker(ctx context.Context, c *cast, f *fault) error {
	n, err := c.leader(ctx)
	if err != nil {
		return err
	}
	f.way = bothWays
	f.note = "with leader " + n.name
	return c.cutGroup(ctx, f, n, []string{n.name, f.host})
}

func (c *cast) cutGroup(ctx context.Context, f *fault, n *node, near []string) error {
	var far []string
	for _, name := range c.names("rpwc") {
		if name != near[0] && name != near[len(near)-1] {
			far = append(far, name)
		}
	}
	heal := c.apply(pairs(near, far, f.way), fabric.Rule{Cut: true})
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
	var far []string
	for _, name := range c.names("rpwc") {
		if name != f.host {
			far = append(far, name)
		}
	}
	defer c.apply(pairs([]string{f.host}, far, bothWays), r)()
	f.hold(ctx)
	return nil
}

func scale(d time.Duration, by float64) time.Duration { return time.Duration(float64(d) * by) }

// stepClock sets a worker's wall clock ahead or back by up to three TTLs, and
// right again.
func stepClock(ctx context.Context, c *cast, f *fault) error {
	p, err := f.hit(c)
	if err != nil {
		return err
	}
	by := scale(6*c.cfg.TTL, f.amount-0.5).Round(time.Millisecond)
	f.note = by.String()
	p.clock.Step(by)
	f.hold(ctx)
	p.clock.Step(-by)
	return nil
}

// slowClock lets a worker's clocks run slower or faster: by 2 %, or beyond the
// margin by 10 to 60 %.
func slowClock(ctx context.Context, c *cast, f *fault) error {
	p, err := f.hit(c)
	if err != nil {
		return err
	}
	by := 0.04*f.amount - 0.02
	if f.kind.beyond {
		by = f.amount - 0.5 + math.Copysign(0.1, f.amount-0.5)
	}
	if l, err := p.Alive(); err == nil {
		f.process = l.Label
	}
	f.note = fmt.Sprintf("%+.1f %%", 100*by)
	p.clock.Rate(1 + by)
	f.hold(ctx)
	p.clock.Rate(1)
	return nil
}

// stepRedis sets the wall clock of the master ahead or back by up to three TTLs,
// and right again.
func stepRedis(ctx context.Context, c *cast, f *fault) error {
	n, err := c.leader(ctx)
	if err != nil {
		return err
	}
	by := scale(6*c.cfg.TTL, f.amount-0.5).Round(time.Millisecond)
	f.process, f.note = n.name, by.String()
	n.clock.Step(by)
	f.hold(ctx)
	n.clock.Step(-by)
	return trial.Await(context.WithoutCancel(ctx), "all replicas follow", c.whole)
}

// slowRedis lets the clocks of the master run slower or faster by up to 2 %.
func slowRedis(ctx context.Context, c *cast, f *fault) error {
	n, err := c.leader(ctx)
	if err != nil {
		return err
	}
	by := 0.04*f.amount - 0.02
	f.process, f.note = n.name, fmt.Sprintf("%+.1f %%", 100*by)
	n.clock.Rate(1 + by)
	f.hold(ctx)
	n.clock.Rate(1)
	return nil
}

// fill fills the disk of a directory until the returned function is called.
func fill(dir string) (empty func() error, err error) {
	name := filepath.Join(dir, "filler")
	out, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	for block := make([]byte, 64<<10); ; {
		if _, err := out.Write(block); errors.Is(err, syscall.ENOSPC) {
			return func() error { return os.Remove(name) }, nil
		} else if err != nil {
			return nil, err
		}
	}
}

func fillRedis(ctx context.Context, c *cast, f *fault) error {
	n, err := c.leader(ctx)
	if err != nil {
		return err
	}
	f.process = n.name
	empty, err := fill(n.dir)
	if err != nil {
		return err
	}
	f.hold(ctx)
	return errors.Join(empty(), c.back(ctx, n))
}

func fillBodies(ctx context.Context, c *cast, f *fault) error {
	empty, err := fill(filepath.Join(c.dir, f.host, "bodies"))
	if err != nil {
		return err
	}
	f.hold(ctx)
	return empty()
}

// boundRedis leaves the master no memory for more.
func boundRedis(ctx context.Context, c *cast, f *fault) error {
	n, err := c.leader(ctx)
	if err != nil {
		return err
	}
	f.process = n.name
	if _, err := n.cli(redisPort, "config", "set", "maxmemory", "1"); err != nil {
		return err
	}
	f.hold(ctx)
	_, err = n.cli(redisPort, "config", "set", "maxmemory", "0")
	return err
}
