package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// distinctKeys are the keys of one client in the scenarios without chaos. It
// comes back to a key long after its last request for it was answered, so that
// no key is busy twice in a row when its partition moves.
const distinctKeys = 64

func distinctJobs(cfg config, think time.Duration) func(client int) func() (trial.Job, time.Duration) {
	return func(client int) func() (trial.Job, time.Duration) {
		rng, i := rand.New(rand.NewPCG(cfg.Seed, uint64(client))), 0
		return func() (trial.Job, time.Duration) {
			i++
			return trial.Job{Key: fmt.Sprintf("c%d-%d", client, i%distinctKeys), Work: time.Millisecond}, trial.UpTo(rng, think)
		}
	}
}

// runSteady prints what Redis is asked for at a low and a high load: no
// request asks it for anything, so the load makes no difference.
func runSteady(ctx context.Context, cfg config, dir string) error {
	cfg.TTL = cfg.sessionTTL()
	s, err := newStage(ctx, cfg, dir)
	if err != nil {
		return err
	}
	defer s.kill()
	if err := s.start(ctx, firstWorkers()); err != nil {
		return err
	}
	trial.Sleep(ctx, cfg.TTL) // until all that the start has set off is over
	var seen []traffic
	for _, clients := range []int{1, cfg.Clients} {
		t, err := steadily(ctx, s, clients, cfg)
		if err != nil {
			return err
		}
		fmt.Fprintf(cfg.Out, "%d clients: %v\n", clients, t)
		seen = append(seen, t)
	}
	low, high := seen[0], seen[1]
	if high.perSecond() > 1.5*low.perSecond()+2 {
		return fmt.Errorf("%w: Redis commands grow with requests: %.1f/s for %d requests, %.1f/s for %d", errViolated,
			low.perSecond(), low.requests, high.perSecond(), high.requests)
	}
	return errors.Join(s.stop()...)
}

func steadily(ctx context.Context, s *stage, clients int, cfg config) (t traffic, err error) {
	l := &trial.Load{Dial: trial.To(s.router.Listen), Now: s.observer.Now, Clients: clients, Jobs: distinctJobs(cfg, time.Millisecond)}
	m := &meter{redis: s.redis, now: s.observer.Now, done: l.Done.Load}
	during(ctx, s, l, func() string { return fmt.Sprint(clients, " clients") }, func(ctx context.Context) {
		if err = m.start(); err != nil {
			return
		}
		trial.Sleep(ctx, cfg.Time/2)
		t, err = m.stop()
	})
	return t, errors.Join(err, ctx.Err())
}

// runMove starts a third worker under load, to which a third of the partitions
// moves, and prints how long requests took before and meanwhile.
func runMove(ctx context.Context, cfg config, dir string) error {
	cfg.TTL = cfg.sessionTTL()
	s, err := newStage(ctx, cfg, dir)
	if err != nil {
		return err
	}
	defer s.kill()
	if err := s.start(ctx, firstWorkers()[:2]); err != nil {
		return err
	}
	l := &trial.Load{Dial: trial.To(s.router.Listen), Now: s.observer.Now, Clients: cfg.Clients, Jobs: distinctJobs(cfg, 40*time.Millisecond)}
	d := &director{stage: s}
	third := firstWorkers()[2]
	during(ctx, s, l, d.lastEvent, func(ctx context.Context) {
		d.run(ctx, []act{{At: cfg.Time / 2, Kind: join, Worker: third}}, func() {})
		trial.Sleep(ctx, cfg.Time/2)
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	r := newReport(cfg, s, d, l, traffic{}, s.stop())
	m := newMove(r, third)
	m.print(cfg)
	if before, during := quantile(m.before, 0.99), quantile(m.during, 0.99); during > before+usual {
		r.violations = append(r.violations, fmt.Sprintf("during the move 1 %% of the requests took more than %v, before it %v", during, before))
	}
	if len(r.violations) > 0 {
		return errors.Join(r.printViolations(cfg.Out, dir), errViolated)
	}
	return nil
}

// move is a planned move as the requests have felt it.
type move struct {
	report     *report
	begin, end time.Duration
	moved      int // keys
	before     []time.Duration
	during     []time.Duration
	ofMoved    []time.Duration // of during: first requests for a moved key at its new worker
}

// newMove finds out from the executions when the move took place: from the
// begin of the first execution on the new worker to the end of the last
// execution elsewhere of a key that moved, and half a second on either side.
func newMove(r *report, to string) *move {
	m := &move{report: r, begin: trial.Never}
	first := make(map[int64]bool) // requests that were the first after a move
	for _, c := range r.seen.Keys {
		i := slices.IndexFunc(c.History, func(x *trial.Execution) bool { return x.Worker == to+"#1" })
		if i < 0 {
			continue
		}
		m.moved++
		first[c.History[i].Request] = true
		m.begin = min(m.begin, c.History[i].Begin-heldUp)
		if i > 0 {
			m.end = max(m.end, c.History[i-1].End)
		}
	}
	m.end = max(m.end, m.begin+heldUp) + heldUp
	for _, q := range r.requests {
		switch x := r.seen.Requests[q.Number]; {
		case x == nil:
		case q.Recv < m.begin:
			m.before = append(m.before, q.Took()-(x.End-x.Begin))
		case q.Send <= m.end:
			m.during = append(m.during, q.Took()-(x.End-x.Begin))
			if first[q.Number] {
				m.ofMoved = append(m.ofMoved, q.Took()-(x.End-x.Begin))
			}
		}
	}
	return m
}

// usual is how much longer than usual a request may wait in a planned move.
const usual = 50 * time.Millisecond

func (m *move) print(cfg config) {
	r := m.report
	fmt.Fprintf(cfg.Out, "\n%d of %d keys moved within %.2f s; %d requests, %d failed\n",
		m.moved, len(r.seen.Keys), (m.end - m.begin - 2*heldUp).Seconds(), len(r.requests), len(r.verdicts))
	w := tabwriter.NewWriter(cfg.Out, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "requests less the app's work\tn\tp50\tp90\tp99\tp99.9\tmax\t")
	row := func(name string, all []time.Duration) {
		slices.Sort(all)
		fmt.Fprintf(w, "%s\t%d\t", name, len(all))
		for _, p := range []float64{0.5, 0.9, 0.99, 0.999, 1} {
			fmt.Fprintf(w, "%v\t", quantile(all, p).Round(10*time.Microsecond))
		}
		fmt.Fprintln(w)
	}
	row("before", m.before)
	row("during the move", m.during)
	row("  first of a moved key", m.ofMoved)
	w.Flush()
	median := quantile(m.before, 0.5)
	slow := func(all []time.Duration) (n int) {
		for _, d := range all {
			if d > median+usual {
				n++
			}
		}
		return n
	}
	fmt.Fprintf(cfg.Out, "longest extra wait over the usual %v: %v (before the move: %v); more than %v: %d requests during, %d before\n",
		median.Round(10*time.Microsecond), quantile(m.during, 1)-median, quantile(m.before, 1)-median, usual, slow(m.during), slow(m.before))
	for k := range trial.Kinds {
		all, _ := r.count(k)
		fmt.Fprintf(cfg.Out, "%s: %d\n", k, all)
	}
}

// quantile of durations in order.
func quantile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(p*float64(len(sorted))))]
}
