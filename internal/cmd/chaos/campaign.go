package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// config is what the flags say.
type config struct {
	Time     time.Duration
	Seed     int64
	TTL      time.Duration // of sessions; 0 chooses one that fits Time
	Hold     time.Duration
	Clients  int
	Lockers  int
	Grant    time.Duration
	Links    bool // trouble the links
	Doors    bool // requests take any worker's public address
	Race     bool
	Programs string // directory of router and worker; empty builds them
	Verbose  bool
	Out      io.Writer
}

// sessionTTL returns the TTL: a campaign has to be several of them long.
func (c config) sessionTTL() time.Duration {
	if c.TTL > 0 {
		return c.TTL
	}
	return min(max(c.Time/5, 4*time.Second), 10*time.Second)
}

// campaign runs the cluster under load while the plan is carried out, and
// reports what was seen. Its error says that it could not be run, not that
// something was found.
func campaign(ctx context.Context, cfg config, dir string) (*report, error) {
	cfg.TTL = cfg.sessionTTL()
	rng := rand.New(rand.NewPCG(uint64(cfg.Seed), 0))
	acts := plan(rng, conditions{Time: cfg.Time, Calm: max(2*time.Second, cfg.Time/20), TTL: cfg.TTL, Hold: cfg.Hold})
	mix := trial.NewMix(rng, cfg.TTL)
	if cfg.Doors { // nginx and net/http send a GET again when a connection breaks
		mix.Posts, mix.LeftShare = 1, 0
	}
	fmt.Fprintf(cfg.Out, "chaos: seed %d, %v, session TTL %v, hold %v\nmix: %v\nplan: %s\n",
		cfg.Seed, cfg.Time, cfg.TTL, cfg.Hold, mix, planned(acts))

	s, err := newStage(ctx, cfg, dir)
	if err != nil {
		return nil, err
	}
	defer s.kill()
	if cfg.Doors {
		if err := s.addDoors(acts); err != nil {
			return nil, err
		}
	}
	if err := s.start(ctx, firstWorkers()); err != nil {
		return nil, err
	}
	l := &trial.Load{Dial: trial.To(s.front), Now: s.observer.Now, Clients: cfg.Clients, Jobs: func(i int) func() (trial.Job, time.Duration) {
		rng := rand.New(rand.NewPCG(uint64(cfg.Seed), uint64(i)+1))
		return func() (trial.Job, time.Duration) { return mix.Next(rng), trial.UpTo(rng, mix.Think) }
	}}
	locks, err := newLockStage(ctx, s, uint64(cfg.Seed))
	if err != nil {
		return nil, err
	}
	defer locks.close()
	d := &director{stage: s, rng: rng}
	begin := s.observer.Now()
	during(ctx, s, l, d.lastEvent, func(ctx context.Context) {
		if s.links != nil {
			troubled, end := context.WithCancel(ctx)
			var wg sync.WaitGroup
			wg.Go(func() { s.links.trouble(troubled, rand.New(rand.NewPCG(uint64(cfg.Seed), 1<<32))) })
			defer wg.Wait()
			defer end()
		}
		locking, stopLocking := context.WithCancel(ctx)
		var callers sync.WaitGroup
		defer callers.Wait()
		defer stopLocking()
		d.run(ctx, acts, func() {
			callers.Go(func() { locks.run(locking) }) // the store keeps some of their locks
		})
		trial.Sleep(ctx, begin+cfg.Time-s.observer.Now())
	})
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r := newReport(cfg, s, d, l, s.stop())
	without, forgotten := outages(d.events, cfg.TTL), losses(d.events, cfg.TTL)
	if cfg.Links {
		without = []outage{{0, trial.Never / 2}}
		forgotten = without
	}
	r.locks = locks.conclude(without, forgotten, cfg.TTL)
	r.Violations = slices.Concat(r.Violations, r.locks.violations, locks.errs)
	return r, nil
}

// during runs the load while f runs, and until it is answered, with a line of
// progress every few seconds.
func during(ctx context.Context, s *stage, l *trial.Load, last func() string, f func(ctx context.Context)) {
	loading, end := context.WithCancel(ctx)
	defer end()
	answered := make(chan struct{})
	go func() { defer close(answered); l.Run(loading) }()
	finished := make(chan struct{})
	go func() { defer close(finished); f(ctx) }()

	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	begin, before := l.Now(), int64(0)
	for played := (<-chan struct{})(finished); ; {
		select {
		case <-played:
			end()
			played = nil
		case <-answered:
			<-finished
			return
		case <-tick.C:
			done := l.Done.Load()
			_, _, found := s.observer.Counts()
			fmt.Fprintf(s.cfg.Out, "%5.0fs  %7d requests (%5.0f/s)  %d failed, %d under way (oldest %.1fs), %d overlaps, %d regressions  %d workers; %s\n",
				(l.Now() - begin).Seconds(), done, float64(done-before)/2, l.Failed.Load(), l.Pending.Load(), l.Longest().Seconds(),
				found[trial.Overlap], found[trial.Regression], len(s.running()), last())
			before = done
		}
	}
}
