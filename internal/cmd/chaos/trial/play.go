package trial

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Trial is a plan, and the site and the load that it is for.
type Trial struct {
	Plan
	Site   *Site
	Mix    Mix
	Dial   []Dialer                    // of the clients of each load
	Count  int                         // of the clients of each load
	Beside []func(ctx context.Context) // run until the last episode has settled
	Out    io.Writer

	loads []*Load
}

// Play runs the site under load while the plan is carried out, and reports what was seen. Its error says that it could
// not be run, not that something was found.
func (t *Trial) Play(ctx context.Context) (*Report, error) {
	episodes := t.Episodes()
	fmt.Fprintf(t.Out, "seed %d, %v, session TTL %v; %v\nmix: %v\n", t.Seed, t.Time, t.TTL, t.Hosts, t.Mix)
	for i, e := range episodes {
		fmt.Fprintf(t.Out, "plan %3d  %v\n", i+1, e)
	}
	if err := t.Site.Start(ctx, t.Dial[0]); err != nil {
		return nil, err
	}
	r := &Report{trial: t, begin: t.Site.Observer.Now()}
	loading, end := context.WithCancel(ctx)
	defer end()
	var clients, others sync.WaitGroup
	for i := range t.Dial {
		l := t.load(i)
		t.loads = append(t.loads, l)
		clients.Go(func() { l.Run(loading) })
	}
	clients.Go(func() { r.watch(loading) })
	playing, stop := context.WithCancel(ctx)
	defer stop()
	for _, f := range t.Beside {
		others.Go(func() { f(playing) })
	}
	Sleep(ctx, t.Quiet)
	for i, e := range episodes {
		if ctx.Err() != nil || t.Site.Observer.Now()-r.begin+t.takes(e)/2 > t.Time {
			break
		}
		r.Faults = append(r.Faults, e...)
		fmt.Fprintf(t.Out, "%5.0fs  %d/%d %v\n", (t.Site.Observer.Now() - r.begin).Seconds(), i+1, len(episodes), e)
		t.perform(ctx, e)
		t.progress(e)
		if len(t.Site.Stage.Dead()) > 0 {
			break // what follows would show nothing new
		}
	}
	if len(t.Site.Stage.Dead()) == 0 {
		Sleep(ctx, t.Time-(t.Site.Observer.Now()-r.begin))
	}
	stop()
	others.Wait()
	end()
	clients.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.finish(t.Site.Stop())
	return r, nil
}

// load makes the clients that dial in one way. Requests of all loads have different numbers.
func (t *Trial) load(i int) *Load {
	return &Load{Dial: t.Dial[i], First: int64(i) << 40, Now: t.Site.Observer.Now, Clients: t.Count, Jobs: func(client int) func() (Job, time.Duration) {
		rng := rand.New(rand.NewPCG(uint64(t.Seed), uint64(i)<<32+uint64(client)+2))
		return func() (Job, time.Duration) { return t.Mix.Next(rng), UpTo(rng, t.Mix.Think) }
	}}
}

// perform carries an episode out, and waits until it has settled and for the
// quiet time after.
func (t *Trial) perform(ctx context.Context, e Episode) {
	now := t.Site.Observer.Now
	var wg sync.WaitGroup
	for _, f := range e {
		wg.Go(func() {
			Sleep(ctx, f.Delay)
			f.Begin = now()
			err := f.Kind.Play(ctx, f)
			f.End = now()
			if ctx.Err() == nil {
				f.Err = err
			}
		})
	}
	wg.Wait()
	until := now()
	for _, f := range e {
		until = max(until, f.until(t.TTL))
	}
	Sleep(ctx, until+t.Quiet-now())
}

func (t *Trial) progress(e Episode) {
	var done, failed, pending int64
	for _, l := range t.loads {
		done, failed, pending = done+l.Done.Load(), failed+l.Failed.Load(), pending+l.Pending.Load()
	}
	_, _, found := t.Site.Observer.Counts()
	fmt.Fprintf(t.Out, "        %d requests, %d failed, %d under way; %d overlaps, %d regressions, %d lost updates\n",
		done, failed, pending, found[Overlap], found[Regression], found[LostUpdate])
	for _, f := range e {
		if f.Err != nil {
			fmt.Fprintf(t.Out, "        %v: %v\n", f, f.Err)
		}
	}
}

// tooLate is by how much this process may run late before requests and locks may fail for it.
const tooLate = 500 * time.Millisecond

// watch notes until ctx ends by how much this process is late because the machine is too busy, and which others are: the
// times when one was too late are faults that nobody planned.
func (r *Report) watch(ctx context.Context) {
	const nap = 10 * time.Millisecond
	now := r.trial.Site.Observer.Now
	others := hunger{proc: "/proc", at: now()}
	for begin := now(); Sleep(ctx, nap); begin = now() {
		by := now() - begin - nap
		if r.late = max(r.late, by); by >= tooLate {
			r.starved = append(r.starved, &Fault{Kind: Starved, Begin: begin, End: now()})
		}
		if before := others.at; now()-before >= glance {
			if who, wait := others.look(now(), r.trial.Site.pids()); wait > 0 {
				r.starve(who, min(before, others.at-wait), others.at)
			}
		}
	}
}

// starve notes that another process has waited for a CPU. Stretches of one process that meet are one.
func (r *Report) starve(who string, begin, end time.Duration) {
	if n := len(r.starved); n > 0 && r.starved[n-1].Process == who && begin <= r.starved[n-1].End {
		r.starved[n-1].End = end
		return
	}
	r.starved = append(r.starved, &Fault{Kind: Starved, Process: who, Begin: begin, End: end})
}

// finish draws the conclusions; stopped is how the programs ended.
func (r *Report) finish(stopped []error) {
	t := r.trial
	r.Faults = append(r.Faults, r.starved...)
	slices.SortFunc(r.Faults, func(a, b *Fault) int { return cmp.Compare(a.Begin, b.Begin) })
	for _, l := range t.loads {
		r.requests = append(r.requests, l.Requests()...)
	}
	r.check(t.Site.Observer.Record())
	for _, f := range r.Faults {
		if f.Err != nil && !r.starving(f) {
			r.Violate("%v at %.3fs: %v", f, f.Begin.Seconds(), f.Err)
		}
	}
	for _, p := range t.Site.Stage.Dead() {
		r.Violate("%s ended by itself: %v (see %s)", p.Name, p.Err(), p.Log)
	}
	for _, err := range stopped {
		if err != nil {
			r.Violate("%v", err)
		}
	}
	if _, running, _ := t.Site.Observer.Counts(); running != 0 || r.Operations == 0 {
		r.Violate("%d executions run although everything has ended, %d operations", running, r.Operations)
	}
}
