//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/keyway-go/keyway/internal/console"
	"github.com/keyway-go/keyway/loadtest/internal/load"
	"github.com/keyway-go/keyway/loadtest/internal/report"
)

// measurement is a run of the load test.
type measurement struct {
	*stage
	progress *progress
	report   *report.Report
	stacks   []*stack // by contender; nil entries if each turn has its own
	checks   []*report.Check
}

// measure runs all scenes and reports.
func measure(ctx context.Context, o *options, stdout, stderr io.Writer) (*report.Report, error) {
	r := &report.Report{Format: report.Format, Started: time.Now(), Command: o.invocation, Machine: machine(), Settings: o.reported(), Versions: versions(ctx, o.requirements())}
	p := newProgress(o, stderr)
	defer p.clear()
	p.say("building the programs …")
	g, err := newStage(ctx, o)
	if err != nil {
		return nil, errors.Join(context.Cause(ctx), err)
	}
	defer g.Close()
	m := &measurement{stage: g, progress: p, report: r}
	if err := errors.Join(m.all(ctx), m.stop()); err != nil {
		return nil, errors.Join(context.Cause(ctx), err)
	}
	r.Took = time.Since(r.Started).Seconds()
	for _, c := range m.checks {
		r.Checks = append(r.Checks, *c)
	}
	r.Warnings = warnings(r)
	return r, nil
}

func (m *measurement) all(ctx context.Context) error {
	m.stacks = make([]*stack, len(m.chosen))
	for i, c := range m.chosen {
		changes := slices.ContainsFunc(m.scenes, func(s scene) bool { return s.takes(c) && s.changes() })
		m.checks = append(m.checks, &report.Check{Contender: c.id, Title: c.title, Expected: c.wrong, Caveat: c.caveat, Unsafe: c.caveat != "" && !c.wrong && changes})
		m.progress.say("starting " + c.title)
		together := m.together(c)
		s, err := m.startStack(ctx, c, together)
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
	r, err := load.Run(ctx, load.Config{Addr: s.addr, Clients: provokeClients, Mix: load.Mix{Keys: 1, Method: "POST", Path: workWait}, Time: provokeTime})
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
	j.Missing = max(0, answered-j.Resource.Executions)
	return j, nil
}

// play runs the rounds of a scene.
func (m *measurement) play(ctx context.Context, sc scene) error {
	scene := &report.Scene{Name: sc.name, Title: sc.title, Where: sc.where, How: sc.how, Changes: sc.changes()}
	m.report.Scenes = append(m.report.Scenes, scene)
	sums := make([]*sum, len(m.chosen))
	for i, c := range m.chosen {
		if sc.takes(c) {
			row := &report.Row{Contender: c.id, Title: c.title, Number: i, Failures: make(map[string]int64)}
			scene.Rows = append(scene.Rows, row)
			sums[i] = &sum{row, load.NewHistogram()}
		}
	}
	for round := range sc.rounds {
		for i, c := range m.chosen {
			if !sc.takes(c) {
				continue
			}
			if err := m.turn(ctx, sc, i, sums[i]); err != nil {
				return fmt.Errorf("%s, %s: %w", sc.name, c.id, err)
			}
			m.progress.turn(sc, round, sums[i].row)
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
	if sc.alone() {
		var err error
		if s, err = m.startStack(ctx, m.chosen[i], []scene{sc}); err != nil {
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
		Addr: s.addr, Clients: m.clients, Rate: m.rate, Mix: sc.mix, WarmUp: sc.warmUp, Time: sc.time,
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
	if err := errors.Join(played, m.Check(), before.err, after.err); err != nil {
		return err
	}
	if r.Answered == 0 {
		return fmt.Errorf("no request was answered with 200: %v", r.Failures)
	}
	sum.add(r, before, after, s.restarted, marks)
	judged, err := s.judge(ctx, sc.mix.Path, r.Total)
	judged.Paused = slices.ContainsFunc(sc.events, func(e event) bool { return e.kind == eventPause })
	sum.row.Judged.Add(judged)
	m.checks[i].Add(judged)
	return err
}

// counters are a stack's at one moment.
type counters struct {
	cpu      map[report.Figure]time.Duration
	commands int64
	err      error
}

// counters is called by the load's thread.
func (s *stack) counters(ctx context.Context) (c counters) {
	c.cpu = s.cpu()
	c.commands, c.err = s.commands(ctx)
	return c
}

// sum is a row in the making.
type sum struct {
	row     *report.Row
	latency *hdrhistogram.Histogram // of all rounds
}

// add adds a turn.
func (s *sum) add(r *load.Result, before, after counters, unknown bool, marks []report.Mark) {
	seconds, answered := r.Time.Seconds(), float64(r.Answered)
	t := report.Turn{
		report.Seconds: seconds, report.Answered: answered, report.Failed: float64(r.Failed), report.PerSecond: answered / seconds,
		report.P50: millis(r.Quantile(50)), report.P99: millis(r.Quantile(99)), report.P999: millis(r.Quantile(99.9)),
		report.Fairness: -1, report.Commands: -1, report.Generator: r.Own.Seconds() / seconds,
	}
	for group, d := range after.cpu {
		each := (d - before.cpu[group]).Seconds() * 1e6 / answered
		t[group] = each
		t[report.CPU] += each
	}
	if !unknown {
		t[report.Commands] = float64(after.commands-before.commands) / answered
	}
	s.latency.Merge(r.Latency)
	if least, most := slices.Min(r.Clients), slices.Max(r.Clients); !r.Open && most > 0 {
		t[report.Fairness] = float64(least) / float64(most)
	}
	for what, n := range r.Failures {
		s.row.Failures[what] += n
	}
	s.row.Turns = append(s.row.Turns, t)
	s.row.Marks, s.row.Series = marks, nil
	for _, p := range r.Series {
		s.row.Series = append(s.row.Series, report.Point{At: p.At.Seconds(), PerSecond: float64(p.Count) / p.Length.Seconds(), Failed: p.Failed, P99: millis(p.P99)})
	}
}

func millis(d time.Duration) float64 { return d.Seconds() * 1e3 }

// finish completes the row. The distribution is drawn at quantiles ever nearer to 1, up to what there are requests beyond.
func (s *sum) finish() {
	n := float64(s.latency.TotalCount())
	for beyond := 1.0; beyond*n >= 1 && len(s.row.Quantiles) <= 50; beyond *= 0.8317637711026711 { // 12 points for each nine
		ns := max(s.latency.ValueAtQuantile(100*(1-beyond)), s.latency.Min())
		s.row.Quantiles = append(s.row.Quantiles, report.Quantile{Quantile: 1 - beyond, Millis: float64(ns) / 1e6})
	}
}

// progress is the line that says how it goes. Without a terminal it is a line for each turn.
type progress struct {
	out      io.Writer
	terminal bool
	left     time.Duration // of the turns to come
}

func newProgress(o *options, out io.Writer) *progress {
	p := &progress{out: out, terminal: console.HasColor(out)}
	for _, s := range o.scenes {
		p.left += time.Duration(s.rounds*len(s.ids)) * (s.warmUp + s.time)
	}
	return p
}

// clear removes the line.
func (p *progress) clear() {
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}

// say says what goes on.
func (p *progress) say(what string) {
	if p.clear(); !p.terminal {
		what += "\n"
	}
	fmt.Fprint(p.out, what)
}

// turn says what came of a turn.
func (p *progress) turn(s scene, round int, row *report.Row) {
	p.left -= s.warmUp + s.time
	t := row.Turns[len(row.Turns)-1]
	p.say(fmt.Sprintf("%s %d/%d  %-12s  %8.0f/s  p99 %.2f ms  errors %.0f  %v left", s.name, round+1, s.rounds, row.Contender, t[report.PerSecond], t[report.P99], t[report.Failed], p.left.Round(time.Second)))
}
