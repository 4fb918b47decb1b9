package main

import (
	"cmp"
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

	"github.com/keyway-go/keyway/internal/cmd/chaos/fabric"
	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// action carries a fault out.
type action func(ctx context.Context, f *trial.Fault) error

// onLeader plays a fault on the node that leads the store, and waits until the store is whole again.
func (c *cast) onLeader(with func(ctx context.Context, f *trial.Fault, n *trial.Node) error) action {
	return func(ctx context.Context, f *trial.Fault) error {
		n, err := c.Store.Leader(ctx)
		if err != nil {
			return err
		}
		f.Process = n.Name
		return errors.Join(with(ctx, f, n), c.back(ctx, n))
	}
}

// atLeader is onLeader for faults that need only the node's name, their process: it is also its host's name.
func (c *cast) atLeader(with action) action {
	return c.onLeader(func(ctx context.Context, f *trial.Fault, _ *trial.Node) error { return with(ctx, f) })
}

// squeeze lets a worker run with so little memory that it collects garbage all
// the time.
func (c *cast) squeeze(ctx context.Context, f *trial.Fault) error {
	c.tight.Store(f.Host)
	err := c.Restart(ctx, f)
	f.Hold(ctx)
	c.tight.Store("")
	p := c.Member(f.Host)
	return errors.Join(err, p.Stop(), p.Start(context.WithoutCancel(ctx)))
}

// upgrade restarts everything, one after the other: followers of the store, its leader after
// another one has taken its place, Sentinels, workers and routers.
func (c *cast) upgrade(ctx context.Context, f *trial.Fault, old *trial.Node) error {
	ctx = context.WithoutCancel(ctx)
	renew := func(n *trial.Node) error {
		for _, p := range n.Programs() {
			_ = p.Stop() // an etcd ends by the signal
		}
		if err := n.Start(ctx); err != nil {
			return err
		}
		return trial.Await(ctx, "all nodes follow after "+n.Name+" was upgraded", c.Store.Whole)
	}
	for _, n := range c.Store.Nodes {
		if n != old {
			if err := renew(n); err != nil {
				return err
			}
		}
	}
	if c.cfg.Store == overRedis { // etcd's leader passes its place on when it ends
		if err := c.switchMaster(ctx, f, old); err != nil {
			return err
		}
	}
	if err := renew(old); err != nil {
		return err
	}
	for _, p := range c.Members() {
		if err := errors.Join(p.Stop(), p.Start(ctx)); err != nil {
			return err
		}
		trial.Sleep(ctx, time.Second)
	}
	return nil
}

func (c *cast) killLeader(ctx context.Context, f *trial.Fault, n *trial.Node) error {
	if _, err := n.Server.Kill(); err != nil {
		return err
	}
	f.Hold(ctx)
	return c.back(ctx, n)
}

// back starts a node's server again and waits until all is as before. A server
// that does not take its append-only file gets it mended, as an operator would.
func (c *cast) back(ctx context.Context, n *trial.Node) error {
	ctx = context.WithoutCancel(ctx)
	if !n.Server.Runs() {
		if err := n.Server.Start(ctx); err != nil {
			return err
		}
	}
	return trial.Await(ctx, "the store is whole after "+n.Name+" is back", func() bool {
		if !n.Server.Runs() {
			if c.cfg.Store == overRedis {
				mend(n)
			}
			_ = n.Server.Start(ctx) // or the next time
		}
		return c.Store.Whole()
	})
}

func (c *cast) pauseLeader(ctx context.Context, f *trial.Fault, n *trial.Node) error {
	n.Server.Signal(syscall.SIGSTOP)
	f.Hold(ctx)
	n.Server.Signal(syscall.SIGCONT)
	return nil
}

// loseWrites cuts the replicas off from the master, which goes on acknowledging
// writes for a moment, and kills it. Among these writes are the moves of a worker
// that leaves.
func (c *cast) loseWrites(ctx context.Context, f *trial.Fault, n *trial.Node) error {
	heal, err := c.network.Apply(fabric.Rule{Cut: true}, ways([]string{n.Name}, c.names("r", n.Name), trial.BothWays)...)
	if err != nil {
		return err
	}
	workers := c.names("w")
	leaver := c.Member(workers[int(f.Amount*float64(len(workers)))])
	left := make(chan error, 1)
	go func() { left <- leaver.Stop() }()
	f.Note = leaver.Name + " leaves"
	select {
	case err = <-left:
		left <- err
		f.Note = leaver.Name + " has left"
	case <-time.After(1500 * time.Millisecond):
	}
	_, err = n.Server.Kill()
	heal()
	f.Hold(ctx)
	return errors.Join(err, <-left, c.back(ctx, n), leaver.Start(context.WithoutCancel(ctx)))
}

func (c *cast) switchMaster(ctx context.Context, _ *trial.Fault, old *trial.Node) error {
	return errors.Join(trial.Await(ctx, "Sentinels let another master take over", func() bool {
		old.Ask(old.Beside, "sentinel", "failover", trial.MasterName)
		now := c.Store.Elected()
		return now != nil && now != old
	}), trial.Await(context.WithoutCancel(ctx), "the new master has all replicas", c.Store.Whole))
}

func (c *cast) killFollower(ctx context.Context, f *trial.Fault, leader *trial.Node) error {
	names := c.names("r", leader.Name)
	f.Process = names[int(f.Amount*float64(len(names)))]
	return c.killLeader(ctx, f, c.node(f.Process))
}

func (c *cast) killSentinel(ctx context.Context, f *trial.Fault) error {
	n := c.node(f.Host)
	if _, err := n.Sentinel.Kill(); err != nil {
		return err
	}
	f.Hold(ctx)
	return n.Sentinel.Start(context.WithoutCancel(ctx))
}

// node returns the store's node on a host.
func (c *cast) node(host string) *trial.Node {
	return c.Store.Nodes[slices.IndexFunc(c.Store.Nodes, func(n *trial.Node) bool { return n.Name == host })]
}

// cutFrom cuts the host off from one host of those letters, or from all.
func (c *cast) cutFrom(letters string, one bool) action {
	return func(ctx context.Context, f *trial.Fault) error {
		far := c.names(letters, f.Host)
		if one {
			far = far[int(f.Amount*float64(len(far))):][:1]
		}
		f.Note = "from " + strings.Join(far, ",")
		return c.during(ctx, f, ways([]string{f.Host}, far, f.Way), fabric.Rule{Cut: true})
	}
}

// cutLeader cuts the store's leader off, or leaves the fault's worker alone with it. A Redis
// master acknowledges its writes as long as min-replicas-max-lag lets it.
func (c *cast) cutLeader(ctx context.Context, f *trial.Fault, n *trial.Node) error {
	near := []string{n.Name}
	if f.Host != "" {
		near, f.Way, f.Note = append(near, f.Host), trial.BothWays, "with leader "+n.Name
		f.Process = ""
	}
	return c.during(ctx, f, ways(near, c.names("rpwc", near...), f.Way), fabric.Rule{Cut: true})
}

// during puts a rule in force while a fault lasts.
func (c *cast) during(ctx context.Context, f *trial.Fault, all []fabric.Way, r fabric.Rule) error {
	heal, err := c.network.Apply(r, all...)
	if err != nil {
		return err
	}
	defer heal()
	f.Hold(ctx)
	return nil
}

// ways returns those from near to far hosts and back, as far as a direction
// says.
func ways(near, far []string, direction trial.Direction) (all []fabric.Way) {
	for _, a := range near {
		for _, b := range far {
			if direction != trial.Inward {
				all = append(all, fabric.Way{From: a, To: b})
			}
			if direction != trial.Outward {
				all = append(all, fabric.Way{From: b, To: a})
			}
		}
	}
	return all
}

// worst is how bad the network of a host becomes.
var worst = map[string]fabric.Rule{
	"delay": {Delay: 30 * time.Millisecond, Jitter: 20 * time.Millisecond},
	"loss":  {Loss: 0.04},
}

// trouble makes the network of a host bad, in both directions.
func (c *cast) trouble(ctx context.Context, f *trial.Fault) error {
	r, share := worst[f.Kind.Name], 0.3+0.7*f.Amount
	r.Delay, r.Jitter, r.Loss = scale(r.Delay, share), scale(r.Jitter, share), r.Loss*share
	f.Note = fmt.Sprintf("%+v", r)
	return c.during(ctx, f, ways([]string{f.Host}, c.names("rpwc", f.Host), trial.BothWays), r)
}

func scale(d time.Duration, by float64) time.Duration { return time.Duration(float64(d) * by) }

// step sets a wall clock ahead or back by up to three TTLs, and right again.
func (c *cast) step(ctx context.Context, f *trial.Fault) error {
	wall := c.clocks[cmp.Or(f.Host, f.Process)]
	by := scale(6*c.TTL, f.Amount-0.5).Round(time.Millisecond)
	f.Note = by.String()
	wall.Step(by)
	f.Hold(ctx)
	wall.Step(-by)
	return nil
}

// rate lets the clocks of a host run slower or faster: by up to 2 %, or beyond the
// margin by 10 to 60 %.
func (c *cast) rate(ctx context.Context, f *trial.Fault) error {
	pace := c.clocks[cmp.Or(f.Host, f.Process)]
	by := 0.04*f.Amount - 0.02
	if f.Kind.Beyond {
		by = f.Amount - 0.5 + math.Copysign(0.1, f.Amount-0.5)
	}
	f.Note = fmt.Sprintf("%+.1f %%", 100*by)
	pace.Rate(1 + by)
	f.Hold(ctx)
	pace.Rate(1)
	return nil
}

func (c *cast) slowClock(ctx context.Context, f *trial.Fault) error {
	if l, err := c.Member(f.Host).Alive(); err == nil {
		f.Process = l.Name
	}
	return c.rate(ctx, f)
}

// fill keeps the disk of a directory full for a while, and calls meanwhile.
func (c *cast) fill(ctx context.Context, f *trial.Fault, dir string, meanwhile func()) error {
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
		meanwhile()
		f.Hold(ctx)
		err = nil
	}
	return errors.Join(err, os.Remove(name))
}

func (c *cast) fillRedis(ctx context.Context, f *trial.Fault, n *trial.Node) error {
	return c.fill(ctx, f, n.Data, func() {})
}

// fillBodies fills a router's disk for bodies. The router has no room for a long body then, and has it again afterwards.
func (c *cast) fillBodies(ctx context.Context, f *trial.Fault) error {
	load := &trial.Load{Dial: c.dial("c1", f.Host), First: 1<<60 + int64(f.Begin), Now: c.Observer.Now}
	fits := func() bool { return load.Send(ctx, trial.Job{Key: "long", Body: longBody}).OK() }
	fitted := false
	err := c.fill(ctx, f, filepath.Join(c.Stage.Dir, f.Host, "bodies"), func() { fitted = fits() })
	if fitted {
		err = errors.Join(err, errors.New("a long body found room on a disk that is full"))
	}
	return errors.Join(err, trial.Await(ctx, f.Host+" takes a long body again", fits))
}

// longBody is more than a router keeps of a body in memory, in bytes.
const longBody = 256 << 10

// boundRedis leaves the master no memory for more.
func (c *cast) boundRedis(ctx context.Context, f *trial.Fault, n *trial.Node) error {
	for _, bytes := range []string{"1", "0"} { // 0 is no bound
		if answer := n.Ask(n.Addr, "config", "set", "maxmemory", bytes); answer != "OK" {
			return fmt.Errorf("%s is asked to set maxmemory, and answers %q", n.Name, answer)
		}
		if bytes == "1" {
			f.Hold(ctx)
		}
	}
	return nil
}
