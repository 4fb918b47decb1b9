package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// play runs the cluster under load while the plan is carried out, and reports
// what was seen. Its error says that it could not be run, not that something
// was found.
func play(ctx context.Context, cfg config, dir string, out io.Writer) (*report, error) {
	episodes := plan(cfg)
	mix := newMix(cfg)
	fmt.Fprintf(out, "campaign: seed %d, %v, session TTL %v, hold %v; %d hosts of %s, %d routers, %d workers, %d × %d clients\nmix: %v\n",
		cfg.Seed, cfg.Time, cfg.TTL, cfg.Hold, storeHosts, cfg.Store, cfg.Routers, cfg.Workers, clientHosts, cfg.Clients, mix)
	for i, e := range episodes {
		fmt.Fprintf(out, "plan %3d  %v\n", i+1, e)
	}
	c, err := newCast(ctx, cfg, dir)
	defer c.close()
	if err != nil {
		return nil, err
	}
	if err := c.start(ctx); err != nil {
		return nil, err
	}
	if err := trial.WarmUp(ctx, c.dial("c1")); err != nil {
		return nil, err
	}
	r := &report{cfg: cfg, cast: c, begin: c.observer.Now()}
	loads := c.loads(mix)
	loading, end := context.WithCancel(ctx)
	defer end()
	var clients sync.WaitGroup
	for _, l := range loads {
		clients.Go(func() { l.Run(loading) })
	}
	clients.Go(func() { r.late, r.starved = starvation(loading, c.observer.Now) })
	trial.Sleep(ctx, quiet)
	for i, e := range episodes {
		if ctx.Err() != nil || c.observer.Now()-r.begin+e.takes(cfg.TTL)/2 > cfg.Time {
			break
		}
		r.faults = append(r.faults, e...)
		fmt.Fprintf(out, "%5.0fs  %d/%d %v\n", (c.observer.Now() - r.begin).Seconds(), i+1, len(episodes), e)
		c.perform(ctx, e)
		c.progress(out, loads, e)
		if len(c.lives.Deaths()) > 0 {
			break // what follows would show nothing new
		}
	}
	end()
	clients.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.finish(loads, c.stop())
	return r, nil
}

// starvation watches until ctx ends by how much this process, which is the
// network of all hosts, is late because the machine is too busy, and returns the
// times when it was by half a second or more as faults that nobody planned.
func starvation(ctx context.Context, now func() time.Duration) (longest time.Duration, all []*fault) {
	trial.Starving(ctx, now, func(since, by time.Duration) {
		if longest = max(longest, by); by >= trial.TooLate {
			all = append(all, &fault{kind: starved, begin: since, end: now()})
		}
	})
	return longest, all
}

// perform carries an episode out, and waits until it has settled and for the
// quiet time after.
func (c *cast) perform(ctx context.Context, e episode) {
	var wg sync.WaitGroup
	for _, f := range e {
		wg.Go(func() {
			trial.Sleep(ctx, f.delay)
			f.begin = c.observer.Now()
			err := f.kind.play(ctx, c, f)
			f.end = c.observer.Now()
			if err != nil && ctx.Err() == nil {
				f.err = err
			}
		})
	}
	wg.Wait()
	until := c.observer.Now()
	for _, f := range e {
		until = max(until, f.until(c.cfg.TTL))
	}
	trial.Sleep(ctx, until+quiet-c.observer.Now())
}

// until returns when requests may no longer fail for a fault.
func (f *fault) until(ttl time.Duration) time.Duration {
	return f.end + f.kind.over(f.end-f.begin, ttl)
}

// newMix is what clients ask for. They send POST requests alone: net/http
// repeats a GET by itself when a connection breaks.
func newMix(cfg config) trial.Mix {
	mix := trial.NewMix(rand.New(rand.NewPCG(uint64(cfg.Seed), 0)), cfg.TTL)
	mix.Posts, mix.LeftShare = 1, 0
	return mix
}

// loads are the clients of each host.
func (c *cast) loads(mix trial.Mix) (all []*trial.Load) {
	for i, host := range c.names("c") {
		all = append(all, &trial.Load{
			Dial: c.dial(host), First: int64(i) << 40, Now: c.observer.Now, Clients: c.cfg.Clients,
			Jobs: func(client int) func() (trial.Job, time.Duration) {
				rng := rand.New(rand.NewPCG(uint64(c.cfg.Seed), uint64(i)<<32+uint64(client)+2))
				return func() (trial.Job, time.Duration) { return mix.Next(rng), trial.UpTo(rng, mix.Think) }
			},
		})
	}
	return all
}

func (c *cast) progress(out io.Writer, loads []*trial.Load, e episode) {
	var done, failed, pending int64
	for _, l := range loads {
		done, failed, pending = done+l.Done.Load(), failed+l.Failed.Load(), pending+l.Pending.Load()
	}
	_, _, found := c.observer.Counts()
	fmt.Fprintf(out, "        %d requests, %d failed, %d under way; %d overlaps, %d regressions, %d lost updates\n",
		done, failed, pending, found[trial.Overlap], found[trial.Regression], found[trial.LostUpdate])
	for _, f := range e {
		if f.err != nil {
			fmt.Fprintf(out, "        %v: %v\n", f, f.err)
		}
	}
}
