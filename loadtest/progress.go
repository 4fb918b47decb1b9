//go:build linux

package main

import (
	"fmt"
	"io"
	"time"

	"github.com/keyway-go/keyway/loadtest/internal/load"
	"github.com/keyway-go/keyway/loadtest/internal/report"
)

// progress is the line that says how it goes. Without a terminal it is a line
// for each turn.
type progress struct {
	out      io.Writer
	terminal bool
	rounds   int
	each     time.Duration // of a turn
	left     int           // turns
	now      string        // what goes on
}

func newProgress(o *options, out io.Writer) *progress {
	return &progress{
		out: out, terminal: isTerminal(out), rounds: o.rounds, each: o.warmUp + o.time, left: len(o.scenes) * o.rounds * len(o.chosen),
	}
}

// clear removes the line.
func (p *progress) clear() {
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}

// say says what goes on.
func (p *progress) say(what string) {
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K"+what)
		return
	}
	fmt.Fprintln(p.out, what)
}

// turn begins a turn.
func (p *progress) turn(s scene, round int, c contender) {
	p.now = fmt.Sprintf("%s %d/%d  %-12s", s.name, round+1, p.rounds, c.id)
	p.left--
}

// show is called now and then in a turn.
func (p *progress) show(l load.Progress) {
	if !p.terminal {
		return
	}
	phase, left := "measuring", l.Left
	if l.Warming {
		phase, left = "warming up", l.Left+p.each
	}
	left += time.Duration(p.left) * p.each
	p.say(fmt.Sprintf("%s  %-10s %8.0f/s  p99 %-9v errors %d  %v left", p.now, phase, l.PerSecond, l.P99.Round(10*time.Microsecond), l.Failed, left.Round(time.Second)))
}

// done ends a turn.
func (p *progress) done(t report.Turn) {
	if !p.terminal {
		p.say(fmt.Sprintf("%s  %8.0f/s  p99 %.2f ms  errors %d  %v left", p.now, t.PerSecond, t.P99, t.Failed, (time.Duration(p.left) * p.each).Round(time.Second)))
	}
}
