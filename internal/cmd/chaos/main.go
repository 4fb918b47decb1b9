// Command chaos tries Keyway's promises on real processes: a redis-server, a
// router and several workers as sidecars, under the load of many clients. Some
// clients leave while the app works.
// Meanwhile workers join, leave, are killed and paused, and redis-server is
// restarted with and without its data. The app behind the sidecars sees every
// execution, and judges. A thousand callers lock keys of the same workers, in this process,
// over HTTP, and in client processes that are killed: they tell this one when
// locks are held, lost and let go. With -languages the clients in clients/ are
// among them, while the routers that serve them are killed.
//
//	go run . -t 60s -seed 1
//
// It prints what happened and exits with 1 if a promise was broken. Which
// failures are allowed is said in docs/guarantees.md and in [stage.plan].
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

func main() { os.Exit(Main()) }

// Main is the program; its tests run it, too.
func Main() int {
	if text := os.Getenv(lockClientEnv); text != "" {
		return cli.Main("chaos", func(ctx context.Context, _ []string, _, _ io.Writer) error { return runLockClient(ctx, text) })
	}
	return cli.Main("chaos", run)
}

const about = "Chaos tries the promises on real processes: a redis-server, a router, workers that come, go and die, and callers that lock keys.\n"

// config is what the flags say.
type config struct {
	Time    time.Duration
	Seed    int64
	TTL     time.Duration // of sessions
	Clients int
	Lockers int
	Grant   time.Duration
	Doors   bool // requests take any worker's public address
	Place   bool // write placements at random
	Verbose bool
	Out     io.Writer

	Languages []language // their clients lock keys too
}

func run(ctx context.Context, args []string, stdout, _ io.Writer) error {
	cfg := config{Out: stdout}
	var names []string
	f := cli.NewFlags("chaos", about)
	f.Duration(&cfg.Time, "t", time.Minute, 10*time.Second, "`length` of the trial")
	f.Int64(&cfg.Seed, "seed", rand.Int64N(1e6), 0, "seed of the plan and the mix")
	f.Duration(&cfg.TTL, "session-ttl", 0, 0, "session TTL of the workers; 0 chooses one that fits -t, 10s at most")
	f.Int(&cfg.Clients, "clients", 64, 1, "`number` of clients")
	f.Int(&cfg.Lockers, "lockers", 1000, leastLockers, "`number` of callers that lock keys")
	f.List(&names, "languages", ",", nil, "have the clients in these `languages` lock keys too, while their routers are killed: python,javascript,java")
	f.Duration(&cfg.Grant, "grant", grantTime, 0, "how long a key that is free, and has an owner, may be kept from a waiting caller: more on a busy machine")
	f.Bool(&cfg.Doors, "doors", "send requests to the public addresses of workers, in turns through nginx, and not to the router")
	f.Bool(&cfg.Place, "place", "write placements of partitions at random (docs/placement.md), as a balancer that is wrong")
	f.Bool(&cfg.Verbose, "v", "let the programs log debug messages")
	if err := f.Parse(args, stdout); err != nil {
		return err
	}
	var err error
	if cfg.Languages, err = languagesOf(names); err != nil {
		return err
	}
	cfg.TTL = cmp.Or(cfg.TTL, trial.SessionTTL(cfg.Time))
	return trial.InDir(stdout, "chaos", args, cfg.Seed, func(dir string) error { return play(ctx, cfg, dir) })
}

// play tries the promises.
func play(ctx context.Context, cfg config, dir string) error {
	s := &stage{Site: trial.NewSite(dir, cfg.TTL), cfg: cfg}
	defer s.Close()
	if err := s.build(ctx); err != nil {
		return err
	}
	t := &trial.Trial{
		Plan: s.plan(), Site: s.Site, Mix: trial.NewMix(rand.New(rand.NewPCG(uint64(cfg.Seed), 0)), cfg.TTL),
		Dial: []trial.Dialer{trial.To(s.front)}, Count: cfg.Clients, Out: cfg.Out,
	}
	if cfg.Doors { // nginx and net/http send a GET again when a connection breaks
		t.Mix.Posts, t.Mix.LeftShare = 1, 0
	}
	locks := newLockStage(s)
	defer locks.server.Close()
	t.Beside = append(t.Beside, locks.run)
	var placements placer
	if cfg.Place {
		t.Beside = append(t.Beside, func(ctx context.Context) {
			placements.run(ctx, s.admin, t.Mix, slices.Concat(workers, newcomers), rand.New(rand.NewPCG(uint64(cfg.Seed), 2<<32)))
		})
	}
	r, err := t.Play(ctx)
	if err != nil {
		return err
	}
	without, forgotten, busy := outages(r.Faults, cfg.TTL)
	l := locks.conclude(without, forgotten, busy)
	r.Violations = append(r.Violations, l.violations...)
	if cfg.Place && placements.placed.Load() == 0 {
		r.Violate("no placement was written: %v", &placements)
	}
	r.Print(func(w io.Writer) {
		if cfg.Place {
			fmt.Fprintf(w, "placements\t%v\n", &placements)
		}
		l.print(w)
	})
	return r.Verdict(dir)
}
