package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keyway-go/keyway/internal/test/redistest"
)

// commands are the calls of each Redis command so far.
type commands map[string]int64

// commandsOf reads what a server has counted.
func commandsOf(redis *redistest.Server) (c commands, err error) {
	err = catch(func() { c = parseCommands(redis.CLI("info", "commandstats")) })
	return c, err
}

func parseCommands(info string) commands {
	c := make(commands)
	for line := range strings.Lines(info) {
		name, rest, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "cmdstat_"), ":calls=")
		if !ok {
			continue
		}
		calls, _, _ := strings.Cut(rest, ",")
		if n, err := strconv.ParseInt(calls, 10, 64); err == nil {
			c[name] = n
		}
	}
	return c
}

// traffic is what Redis was asked for in a span of time.
type traffic struct {
	span     time.Duration
	requests int64
	calls    commands
}

// trips are the commands that come over the network: scripts, and what is not
// called by scripts.
func (t traffic) trips() (n int64) {
	for name, calls := range t.calls {
		switch name {
		case "evalsha", "eval", "script|load", "ping", "hello", "subscribe", "auth", "select", "client|setinfo":
			n += calls
		}
	}
	return n
}

func (t traffic) perSecond() float64 { return float64(t.trips()) / t.span.Seconds() }

func (t traffic) String() string {
	names := slices.SortedFunc(maps.Keys(t.calls), func(a, b string) int { return cmp.Compare(t.calls[b], t.calls[a]) })
	var list []string
	for _, name := range names {
		if t.calls[name] > 0 {
			list = append(list, fmt.Sprintf("%s %d", name, t.calls[name]))
		}
	}
	return fmt.Sprintf("%d round trips in %.1f s (%.1f/s), %d requests: %.1f per 1,000 requests (with what scripts call: %s)",
		t.trips(), t.span.Seconds(), t.perSecond(), t.requests, 1000*float64(t.trips())/float64(max(1, t.requests)), strings.Join(list, ", "))
}

// meter measures traffic from its start on.
type meter struct {
	redis  *redistest.Server
	now    func() time.Duration
	done   func() int64 // requests so far
	begin  time.Duration
	first  int64
	before commands
}

func (m *meter) start() (err error) {
	m.begin, m.first = m.now(), m.done()
	m.before, err = commandsOf(m.redis)
	return err
}

func (m *meter) stop() (traffic, error) {
	after, err := commandsOf(m.redis)
	for name, n := range m.before {
		after[name] -= n
	}
	return traffic{span: m.now() - m.begin, requests: m.done() - m.first, calls: after}, err
}
