//go:build linux

package main

import (
	"fmt"
	"io"
	"time"

	"github.com/keyway-go/keyway/internal/console"
	"github.com/keyway-go/keyway/loadtest/internal/load"
	"github.com/keyway-go/keyway/loadtest/internal/report"
)

// progress is the line that says how it goes. Without a terminal it is a line
// for each turn.
type progress struct {
	out      io.Writer
	terminal bool
	left     time.Duration // of the turns to come
	time     time.Duration // of this one
	now      string        // what goes on
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
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K"+what)
		return
	}
	fmt.Fprintln(p.out, what)
}

// turn begins a turn.
func (p *progress) turn(s scene, round int, c contender) {
	p.now = fmt.Sprintf("%s %d/%d  %-12s", s.name, round+1, s.rounds, c.id)
	p.time = s.time
	p.left -= s.warmUp + s.time
}

// show is called now and then in a turn.
func (p *progress) show(l load.Progress) {
	if !p.terminal {
		return
	}
	phase, left := "measuring", l.Left
	if l.Warming {
		phase, left = "warming up", l.Left+p.time
	}
	left += p.left
	p.say(fmt.Sprintf("%s  %-10s %8.0f/s  p99 %-9v errors %d  %v left", p.now, phase, l.PerSecond, l.P99.Round(10*time.Microsecond), l.Failed, left.Round(time.Second)))
}

// done ends a turn.
func (p *progress) done(t report.Turn) {
	if !p.terminal {
		p.say(fmt.Sprintf("%s  %8.0f/s  p99 %.2f ms  errors %d  %v left", p.now, t.PerSecond, t.P99, t.Failed, p.left.Round(time.Second)))
	}
}
