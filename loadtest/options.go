//go:build linux

package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/loadtest/internal/lockers"
	"github.com/keyway-go/keyway/loadtest/internal/report"
)

const about = `Loadtest runs the same work over Keyway and over other ways to exclude, in turns,
and compares them. It starts what it needs on free ports and stops it again.
A run fails with exit code 1 if a contender was wrong that should be right, or was
not caught though it must.

Contenders (the first one named is what the others are compared with; those with
a lock can have ` + localSuffix + `, a mutex in each process before the lock):
`

// maxRate bounds --rate: a nanosecond between requests.
const maxRate = 1e9

// options are what a run is asked for.
type options struct {
	short      bool
	names      []string
	workloads  []string
	keys       int
	clients    int
	rate       float64
	rounds     int
	time       time.Duration
	warmUp     time.Duration
	instances  int
	ttl        time.Duration
	eventText  string
	programs   string
	out        string
	chosen     []contender
	scenes     []scene
	events     []event
	invocation string
}

func parseOptions(args []string, stdout io.Writer) (*options, error) {
	o := &options{invocation: strings.Join(append([]string{"loadtest"}, args...), " ")}
	var text strings.Builder
	text.WriteString(about)
	for _, c := range contenders() {
		fmt.Fprintf(&text, "  %-14s%s\n", c.id, c.title)
	}
	f := cli.NewFlags("loadtest", text.String())
	f.Group("What")
	f.Bool(&o.short, "short", "less than 4 minutes: by default the workloads "+shortWorkloads+" with the contenders "+shortContenders)
	f.List(&o.names, "contenders", ",", nil, "`names` separated by commas, or \"all\" of the above; default "+usualContenders+"; in PostgreSQL "+postgresContenders+", while members change "+membersContenders)
	f.List(&o.workloads, "workloads", ",", nil, "`names` of some of uniform, zipf (the i-th key comes with weight 1/i^1.1) and hot (one key), each also with a work in the critical section, "+
		"as in hot-wait (for 1 ms) and hot-stock-postgres (a decrement in PostgreSQL, read and written in one transaction); and of "+
		workloadMembers+": few busy keys, while a worker is added, one stopped and one killed; default "+usualWorkloads)
	f.Int(&o.keys, "keys", 10_000, 1, "`number` of keys")
	f.Group("How")
	f.Int(&o.clients, "clients", 64, 1, "`number` of clients, each with a connection")
	f.Float(&o.rate, "rate", 0, 0, maxRate, "`requests` per second in all that are due, whether or not the ones before are answered; latency counts from when a request is due. 0: each client sends one when it has the answer to the last")
	f.Int(&o.rounds, "rounds", 5, 1, "`number` of rounds in which each contender has its turn")
	f.Duration(&o.time, "time", time.Second, 50*time.Millisecond, "`length` of a turn")
	f.Duration(&o.warmUp, "warm-up", 250*time.Millisecond, 0, "`length` of the load before each turn")
	f.Int(&o.instances, "instances", 3, 1, "`number` of workers")
	f.Duration(&o.ttl, "ttl", 10*time.Second, time.Second, "`time` after which a lock that nobody renews is free, and a worker that died is taken over")
	f.String(&o.programs, "programs", "", "`directory` of the router and worker to use; by default they are built")
	f.String(&o.eventText, "events", "", "what happens in each turn: `events` such as \"5s add, 10s drain w1, 15s kill w2, 20s pause w3 3s, 30s restart-redis\"; each turn then has processes of its own")
	f.Group("Output")
	f.String(&o.out, "out", "report", "`directory` of report.html and results.json")
	if err := f.Parse(args, stdout); err != nil {
		return nil, err
	}
	return o, o.check()
}

func (o *options) check() (err error) {
	if o.events, err = parseEvents(o.eventText); err != nil {
		return err
	}
	if err := o.plan(); err != nil {
		return err
	}
	for _, s := range o.scenes {
		for _, e := range s.events {
			if e.at+e.length >= s.time {
				return cli.Usagef("--events: %q does not end within --time %v", e, s.time)
			}
			for _, c := range o.chosen {
				if s.takes(c) && c.fixed && e.kind != eventRestart && e.kind != eventPause {
					return cli.Usagef("%s: %s cannot do without its workers, nor take others", s.name, c.id)
				}
			}
		}
	}
	return nil
}

func (o *options) reported() report.Settings {
	return report.Settings{
		Clients: o.clients, Rate: o.rate, Rounds: o.rounds, Seconds: o.time.Seconds(), WarmUp: o.warmUp.Seconds(),
		Instances: o.instances, Keys: o.keys, TTL: o.ttl.String(), Poll: lockers.Poll.String(), Events: o.eventText,
	}
}
