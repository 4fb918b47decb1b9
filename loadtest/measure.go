//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/keyway-go/keyway/loadtest/internal/load"
	"github.com/keyway-go/keyway/loadtest/internal/proc"
	"github.com/keyway-go/keyway/loadtest/internal/report"
)

// measurement is a run of the load test.
type measurement struct {
	*options
	stage    *stage
	progress *progress
	report   *report.Report
	stacks   []*stack // by contender; nil entries if each turn has its own
	checks   []*report.Check
}

// measure runs all scenes and reports.
func measure(ctx context.Context, o *options, stdout, stderr io.Writer) (*report.Report, error) {
	m := &measurement{options: o, report: &report.Report{
		Format: report.Format, Started: time.Now(), Command: o.invocation, Machine: machine(), Settings: o.reported(),
	}}
	proc.RaiseFileLimit()
	m.report.Versions = versions(ctx, o.requirements())
	m.progress = newProgress(o, stderr)
	m.progress.say("building the programs …")
	var err error
	if m.stage, err = newStage(ctx, o); err != nil {
		return nil, errors.Join(context.Cause(ctx), err)
	}
	defer m.stage.close()
	defer m.progress.clear()
	if err := errors.Join(m.all(ctx), m.stop()); err != nil {
		return nil, errors.Join(context.Cause(ctx), err)
	}
	m.report.Took = time.Since(m.report.Started).Seconds()
	for _, c := range m.checks {
		m.report.Checks = append(m.report.Checks, *c)
	}
	m.report.Warnings = o.warnings(m.report)
	return m.report, nil
}

func (m *measurement) all(ctx context.Context) error {
	m.stacks = make([]*stack, len(m.chosen))
	for i, c := range m.chosen {
		changes := slices.ContainsFunc(m.scenes, func(s scene) bool { return s.takes(c) && s.changes() })
		m.checks = append(m.checks, &report.Check{Contender: c.id, Title: c.title, Expected: c.wrong, Caveat: c.caveat, Unsafe: c.caveat != "" && !c.wrong && changes})
		m.progress.say("starting " + c.title)
		together := m.together(c)
		s, err := m.stage.startStack(ctx, c, together)
		if err != nil {
			return err
		}
		judged, err := m.provoke(ctx, s)
		m.checks[i].Add(judged)
		if err != nil {
			return fmt.Errorf("%s: %w", c.id, errors.Join(err, s.stop()))
		}
		if len(together) > 0 {
			m.stacks[i] = s
		} else if err := s.stop(); err != nil {
			return err
		}
	}
	for _, s := range m.scenes {
		if err := m.play(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// stop ends the stacks that run.
func (m *measurement) stop() (failed error) {
	for _, s := range m.stacks {
		if s != nil {
			failed = errors.Join(failed, s.stop())
		}
	}
	return failed
}

// What provoke does.
const (
	provokeClients = 16
	provokeTime    = 300 * time.Millisecond
)

// provoke lets clients contend for one key with a critical section that waits,
// so that who does not exclude is caught, whatever the workload.
func (m *measurement) provoke(ctx context.Context, s *stack) (report.Judgement, error) {
	r, err := load.Run(ctx, load.Config{Addr: s.addr, Clients: provokeClients, Mix: load.Mix{Keys: 1, Path: workWait}, Time: provokeTime})
	if err != nil {
		return report.Judgement{}, err
	}
	if r.Total == 0 {
		return report.Judgement{}, fmt.Errorf("no request was answered with 200: %v", r.Failures)
	}
	return s.judge(ctx, workWait, r.Total)
}

// judge judges what has happened to a stack since the last time.
func (s *stack) judge(ctx context.Context, work string, answered int64) (j report.Judgement, err error) {
	j.Answered = answered
	if j.Resource, err = s.since(ctx, work); err != nil {
		return j, err
	}
	j.Missing = max(0, answered-j.Resource.Executions-j.Resource.Reads)
	return j, nil
}

// play runs the rounds of a scene.
func (m *measurement) play(ctx context.Context, sc scene) error {
	scene := &report.Scene{Name: sc.name, Title: sc.title, Where: sc.where, How: sc.how, Changes: sc.changes()}
	m.report.Scenes = append(m.report.Scenes, scene)
	sums := make([]*sum, len(m.chosen))
	for i, c := range m.chosen {
		if sc.takes(c) {
			row := &report.Row{Contender: c.id, Title: c.title, Number: i}
			scene.Rows = append(scene.Rows, row)
			sums[i] = newSum(row)
		}
	}
	for round := range sc.rounds {
		for i, c := range m.chosen {
			if !sc.takes(c) {
				continue
			}
			m.progress.turn(sc, round, c)
			if err := m.turn(ctx, sc, i, sums[i]); err != nil {
				return fmt.Errorf("%s, %s: %w", sc.name, c.id, err)
			}
		}
	}
	for _, s := range sums {
		if s != nil {
			s.finish()
		}
	}
	return nil
}

// turn lets a contender take its turn.
func (m *measurement) turn(ctx context.Context, sc scene, i int, sum *sum) (failed error) {
	s := m.stacks[i]
	if m.alone(sc) {
		var err error
		if s, err = m.stage.startStack(ctx, m.chosen[i], []scene{sc}); err != nil {
			return err
		}
		defer func() { failed = errors.Join(failed, s.stop()) }()
	}
	var before, after counters
	var played error
	var marks []report.Mark
	playing, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan struct{})
	r, err := load.Run(ctx, load.Config{
		Addr: s.addr, Clients: m.clients, Rate: float64(m.rate), Mix: sc.mix, WarmUp: sc.warmUp, Time: sc.time, Progress: m.progress.show,
		Begin: func() {
			before = s.counters(ctx)
			begin := time.Now()
			go func() {
				defer close(done)
				marks, played = s.play(playing, begin, sc.events)
			}()
		},
		End: func() { after = s.counters(ctx) },
	})
	if err != nil {
		return err
	}
	<-done
	if err := errors.Join(played, s.check(), before.err, after.err); err != nil {
		return err
	}
	if r.Answered == 0 {
		return fmt.Errorf("no request was answered with 200: %v", r.Failures)
	}
	sum.add(r, before, after, s.restarted || s.isGiven(), marks)
	m.progress.done(sum.row.Turns[len(sum.row.Turns)-1])
	judged, err := s.judge(ctx, sc.mix.Path, r.Total)
	judged.Paused = slices.ContainsFunc(sc.events, func(e event) bool { return e.kind == eventPause })
	sum.row.Judged.Add(judged)
	m.checks[i].Add(judged)
	return err
}

// counters are a stack's at one moment.
type counters struct {
	cpu      map[string]time.Duration
	network  time.Duration // CPU time of the thread that delays
	commands int64
	err      error
}

func (s *stack) counters(ctx context.Context) (c counters) {
	c.cpu = s.cpu()
	if s.network != nil {
		c.network = s.network.CPU()
	}
	c.commands, c.err = s.commands(ctx)
	return c
}

// sum is a row in the making.
type sum struct {
	row      *report.Row
	all      *load.Result
	failures map[string]int64
}

func newSum(row *report.Row) *sum { return &sum{row: row, failures: make(map[string]int64)} }

// add adds a turn.
func (s *sum) add(r *load.Result, before, after counters, unknown bool, marks []report.Mark) {
	seconds, answered := r.Time.Seconds(), float64(r.Answered)
	millis := func(q float64) float64 { return float64(r.Latency.ValueAtQuantile(q)) / 1e6 }
	t := report.Turn{
		Seconds: seconds, Answered: r.Answered, Failed: r.Failed, PerSecond: answered / seconds,
		P50: millis(50), P99: millis(99), P999: millis(99.9), Max: float64(r.Latency.Max()) / 1e6,
		Fairness: -1, CPU: make(map[string]float64), Commands: -1, Generator: r.Own.Seconds() / seconds,
	}
	for group, d := range after.cpu {
		used := (d - before.cpu[group]).Seconds()
		t.CPU[group] = used * 1e6 / answered
		t.Busy += used / seconds / float64(cores())
	}
	t.Network = (after.network - before.network).Seconds() / seconds
	if !unknown {
		t.Commands = float64(after.commands-before.commands) / answered
	}
	waited := func(q float64) float64 { return float64(r.Waits.ValueAtQuantile(q)) / 1e6 }
	t.Wait50, t.Wait99 = waited(50), waited(99)
	if s.all == nil {
		s.all = r
	} else {
		s.all.Latency.Merge(r.Latency)
	}
	if least, most := slices.Min(r.Clients), slices.Max(r.Clients); !r.Open && most > 0 {
		t.Fairness = float64(least) / float64(most)
	}
	for _, f := range r.Failures {
		s.failures[f.What] += f.Count
	}
	s.row.Turns = append(s.row.Turns, t)
	s.row.Marks, s.row.Series = marks, nil
	for _, p := range r.Series {
		s.row.Series = append(s.row.Series, report.Point{
			At: p.At.Seconds(), PerSecond: float64(p.Count) / p.Length.Seconds(), Failed: p.Failed, P50: p.P50.Seconds() * 1e3, P99: p.P99.Seconds() * 1e3,
		})
	}
}

// quantiles are where the distribution is drawn: ever nearer to 1.
func quantiles() (qs []float64) {
	for nines, step := 1.0, 0; step <= 50; step++ {
		qs = append(qs, 1-nines)
		nines *= 0.8317637711026711 // ten to the power of -0.08: 12 points for each nine
	}
	return qs
}

// finish completes the row.
func (s *sum) finish() {
	n := float64(s.all.Latency.TotalCount())
	for _, q := range quantiles() {
		if (1-q)*n < 1 {
			break // there is nothing beyond it
		}
		s.row.Quantiles = append(s.row.Quantiles, report.Quantile{Quantile: q, Millis: float64(max(s.all.Latency.ValueAtQuantile(100*q), s.all.Latency.Min())) / 1e6})
	}
	for why, n := range s.failures {
		s.row.Failures = append(s.row.Failures, report.Failure{Why: why, Count: n})
	}
	slices.SortFunc(s.row.Failures, func(a, b report.Failure) int { return int(b.Count - a.Count) })
}
