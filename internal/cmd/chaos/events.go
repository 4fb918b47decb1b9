package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// event is an act that was carried out.
type event struct {
	act
	process string        // the one it was done to
	begin   time.Duration // by the observer's clock
	end     time.Duration // the process is dead, ready, or runs on
	err     error
}

// overlaps reports whether a request was under way during the event.
func (e *event) overlaps(r *trial.Request) bool { return r.Send <= e.end && r.Recv >= e.begin }

// director carries out a plan.
type director struct {
	stage *stage
	rng   *rand.Rand

	mu     sync.Mutex
	events []*event
	last   string
	busy   sync.WaitGroup
}

// run carries the plan out, from the present moment on, and returns when every
// event has come to its end. Before the first one it calls first.
func (d *director) run(ctx context.Context, acts []act, first func()) {
	defer d.busy.Wait()
	start := d.stage.observer.Now()
	for i, a := range acts {
		if !trial.Sleep(ctx, start+a.At-d.stage.observer.Now()) {
			return
		}
		if i == 0 {
			first()
		}
		e := &event{act: a, begin: d.stage.observer.Now()}
		d.mu.Lock()
		d.events = append(d.events, e)
		d.last = a.String()
		d.mu.Unlock()
		d.perform(ctx, e)
	}
}

// lastEvent says what came last, for the line of progress.
func (d *director) lastEvent() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last
}

// later carries on with an event while the next ones come.
func (d *director) later(e *event, f func() error) {
	d.busy.Go(func() { e.finish(d, f()) })
}

func (e *event) finish(d *director, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e.end, e.err = d.stage.observer.Now(), err
}

func (d *director) perform(ctx context.Context, e *event) {
	s := d.stage
	switch e.Kind {
	case join:
		l := s.startWorker(ctx, e.Worker)
		e.process = l.Label
		d.later(e, l.Ready)
	case redisRestart, redisLoss:
		e.finish(d, d.restartRedis(ctx, e.Kind == redisLoss))
	default:
		p := s.worker(e.Worker)
		l, err := p.Alive()
		if err != nil {
			e.finish(d, err)
			return
		}
		e.process = l.Label
		e.begin = s.observer.Now()
		d.performOn(ctx, e, p, l)
	}
}

func (d *director) performOn(ctx context.Context, e *event, p *trial.Program, l *trial.Life) {
	switch e.Kind {
	case leave:
		_, _ = p.End() // it is alive
		d.later(e, l.Leave)
	case kill, restart:
		_, err := p.Kill()
		e.finish(d, err)
		if e.Kind == restart {
			trial.Sleep(ctx, trial.UpTo(d.rng, restartDelay))
			d.stage.startWorker(ctx, e.Worker)
		}
	case pause:
		if err := l.Pause(); err != nil {
			e.finish(d, err)
			return
		}
		d.later(e, func() error {
			trial.Sleep(ctx, pauseTime)
			return l.Resume()
		})
	}
}

// restartRedis leaves the server down for a moment.
func (d *director) restartRedis(ctx context.Context, lose bool) error {
	redis := d.stage.redis
	redis.Kill()
	trial.Sleep(ctx, trial.UpTo(d.rng, time.Second))
	if lose {
		if err := redis.Clear(); err != nil {
			return err
		}
	}
	return redis.Start(context.WithoutCancel(ctx))
}

// failures returns what events and processes did wrong.
func (d *director) failures() (all []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.events {
		if e.err != nil {
			all = append(all, fmt.Sprintf("%s at %.1fs: %v", e.act, e.begin.Seconds(), e.err))
		}
	}
	return append(all, d.stage.lives.Deaths()...)
}
