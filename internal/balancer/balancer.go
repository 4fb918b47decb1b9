// Package balancer moves busy partitions to workers that have less to do.
//
// Every worker runs a balancer, and one at a time balances, with a lock of the cluster's own lock service. It
// asks all workers for their loads, and writes to the store which partitions should not go by the ring.
// Package handoff decides all the same who owns a partition. A balancer may therefore be wrong, dead or one of
// several, which costs at most moves.
package balancer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/placement"
	"github.com/keyway-go/keyway/internal/status"
	"github.com/keyway-go/keyway/internal/wake"
	"github.com/keyway-go/keyway/localmutex/locking"
	"github.com/keyway-go/keyway/ring"
)

const (
	candidates = 2                // workers that may balance: the first ones on the ring, by name
	tryEvery   = 5 * time.Second  // for the lock
	capacity   = 1                // load of a worker of weight 1, in seconds of work a second, below which an excess counts less
	idle       = 0.05             // mean load of a worker below which rounds are rare
	idleRound  = 30 * time.Second // the time between those: asking keeps links to all workers busy
)

// Config configures [Run].
type Config struct {
	Name    string // of this worker
	Members gateway.Members
	Locks   locking.Locker
	Loads   func(context.Context) []status.LoadRow // of all workers
	Place   func(ctx context.Context, from, to string) (string, error)
	Logger  *slog.Logger
}

// Run balances whenever that is for this worker to do, until ctx ends.
func Run(ctx context.Context, cfg Config) {
	for ctx.Err() == nil {
		changed := cfg.Members.Changed()
		if !cfg.isCandidate() {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		// The store keeps a lock whose lease is longer than a session's.
		ttl := cfg.Members.Settings().WithDefaults().TTL
		lease, err := cfg.Locks.TryLock(ctx, placement.Lock, locking.TTL(ttl), locking.Label("balancer of "+cfg.Name))
		if err == nil {
			cfg.balance(lease.Context())
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), ttl/5)
			err = lease.Unlock(end)
			cancel()
		}
		if err != nil && !errors.Is(err, locking.ErrLocked) {
			cfg.Logger.Debug("the balancer's lock", "error", err)
		}
		wake.Sleep(tryEvery, ctx.Done())
	}
}

// isCandidate reports whether this worker may balance.
func (c *Config) isCandidate() bool {
	workers := c.Members.View().Workers()
	for _, m := range workers[:min(len(workers), candidates)] {
		if m.Name == c.Name {
			return len(workers) > 1
		}
	}
	return false
}

// balance makes rounds until ctx ends, or this worker is no candidate any more.
func (c *Config) balance(ctx context.Context) {
	planner, began := placement.New(placement.Config{Capacity: capacity}), time.Now()
	for pause := time.Duration(placement.Round); c.isCandidate(); {
		if !wake.Sleep(pause, ctx.Done()) || ctx.Err() != nil {
			return
		}
		if pause = placement.Round; c.round(ctx, planner, time.Since(began)) < idle {
			pause = idleRound
		}
	}
}

// round is one look at the loads, and at most one change of the placements. A worker that does not tell its load
// makes it end without one. It returns the mean load of a worker, as far as that is known.
func (c *Config) round(ctx context.Context, planner *placement.Planner, now time.Duration) (mean float64) {
	view := c.Members.View()
	placed, err := placement.Decode(view.Placements)
	if err != nil {
		c.Logger.Error("the placements in the store cannot be read", "error", err)
		return 0
	}
	cluster := clusterOf(view, placed)
	if !cluster.add(c.Loads(ctx)) || c.Members.View().Digest != view.Digest {
		return idle
	}
	next, why := planner.Plan(now, cluster.Cluster)
	to := placement.Encode(next)
	if to == view.Placements {
		return why.Mean
	}
	is, err := c.Place(ctx, view.Placements, to)
	switch {
	case err != nil:
		c.Logger.Warn("cannot write placements", "error", err)
	case is != to:
		c.Logger.Debug("the placements have changed meanwhile")
	default:
		c.Logger.Info("partitions are placed by load", "why", why.String())
	}
	return why.Mean
}

// cluster is what is known of one at a moment.
type cluster struct {
	placement.Cluster
	view  *ring.View
	index map[string]int // by a worker's name
}

func clusterOf(view *ring.View, placed []placement.Placement) *cluster {
	c := &cluster{view: view, index: make(map[string]int)}
	for i, m := range view.Workers() {
		c.index[m.Name] = i
		c.Workers = append(c.Workers, placement.Worker{Name: m.Name, Weight: 1})
	}
	byRing := view.Table.Place(nil)
	c.Placed, c.Loads, c.Ring = placed, make([]float64, byRing.Partitions()), make([]int32, byRing.Partitions())
	for p := range c.Ring {
		c.Ring[p] = -1
		if name, ok := byRing.Owner(p); ok {
			c.Ring[p] = int32(c.index[name])
		}
	}
	return c
}

// add takes the loads that workers tell. It reports false if a worker on the ring does not.
func (c *cluster) add(rows []status.LoadRow) bool {
	told := 0
	for _, row := range rows {
		i, ok := c.index[row.Worker]
		switch {
		case !ok:
			continue // off the ring
		case row.Loads == nil:
			return false
		}
		told++
		c.Workers[i].Weight = row.Loads.Weight
		for _, p := range row.Loads.Partitions {
			if p.Partition >= 0 && p.Partition < len(c.Loads) {
				c.Loads[p.Partition] += p.Load
			}
		}
		c.spread(i, row.Loads)
	}
	return told == len(c.Workers)
}

// spread adds the load of the partitions that a worker does not tell one by one, evenly to its others.
func (c *cluster) spread(worker int, l *status.Loads) {
	if l.Others == 0 {
		return
	}
	told := make(map[int]bool)
	for _, p := range l.Partitions {
		told[p.Partition] = true
	}
	var others []int
	for p := range c.Loads {
		if m, ok := c.view.Owner(p); ok && c.index[m.Name] == worker && !told[p] {
			others = append(others, p)
		}
	}
	for _, p := range others {
		c.Loads[p] += l.Rest.Load / float64(len(others))
	}
}
