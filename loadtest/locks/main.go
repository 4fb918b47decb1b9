//go:build linux

// Command locks measures what a lock costs in the worker that keeps it, for clients that
// take locks with [keyway.Client.TryLock] and give them back:
//
//	go run ./locks
//
// A worker and a Redis are processes of their own; the callers are goroutines of this one. At first they
// do what they can, then half as much, at random times: with locks that live in the worker's memory, and then with locks
// of a minute, which it writes to the store as well. No two callers want a key at once.
//
// With -peers it compares [keyway.Client.Lock] with the locks of others instead, of keys that one caller wants and of
// a key that all want.
package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/loadtest/internal/load"
	"github.com/keyway-go/keyway/loadtest/internal/lockers"
	"github.com/keyway-go/keyway/loadtest/internal/proc"
	"github.com/keyway-go/keyway/loadtest/internal/report"
	"github.com/keyway-go/keyway/loadtest/internal/servers"
	"github.com/keyway-go/keyway/localmutex/locking"
	"github.com/keyway-go/keyway/ring"
)

func main() { os.Exit(cli.Main("locks", run)) }

const (
	clusterName = "locks"
	warmUp      = time.Second
	keysEach    = 100              // of a caller
	longLease   = time.Minute      // longer than the session TTL
	peerTTL     = 10 * time.Second // as Keyway's
	mostCallers = 64               // of a comparison
	about       = `Locks measures how many locks a worker takes and gives back for clients elsewhere, what
that costs it, and how long a call takes at half of that rate; for locks in its memory and
for locks of a minute, which are written to the store.
`
)

// bench is the measurement.
type bench struct {
	time    time.Duration
	callers int
	peers   []string // to compare with; nil for none
	rounds  int      // of the comparison

	out    io.Writer
	stage  *proc.Stage
	server []*proc.Process // the store, and the worker
	gossip string          // address of the worker
}

func run(ctx context.Context, args []string, stdout, _ io.Writer) (err error) {
	b := &bench{out: stdout}
	f := cli.NewFlags("locks", about)
	f.Duration(&b.time, "t", 5*time.Second, time.Millisecond, "how `long` each part lasts, after a second, or each turn of a comparison")
	f.Int(&b.callers, "callers", 256, 1, "`number` of callers at once, 64 at most in a comparison")
	f.List(&b.peers, "peers", ",", nil, "`locks` to compare with, with commas between: etcd, lock (Keyway's Redis lock), redislock, redsync")
	f.Int(&b.rounds, "rounds", 3, 1, "`number` of turns that each has in a comparison")
	if err := f.Parse(args, stdout); err != nil {
		return err
	}
	stage, programs, err := servers.Open(ctx, "locks", "")
	if err != nil {
		return err
	}
	defer stage.Close()
	b.stage = stage
	if err := b.start(ctx, programs.Worker); err != nil {
		return err
	}
	if b.peers != nil {
		return b.compare(ctx)
	}
	return b.measure(ctx)
}

func (b *bench) newClient(ctx context.Context) (*keyway.Client, error) {
	return keyway.NewClient(ctx, keyway.ClientConfig{Join: []string{b.gossip}, Settings: ring.Settings{Cluster: clusterName}})
}

// start starts the worker.
func (b *bench) start(ctx context.Context, program string) error {
	store, err := servers.StartRedis(ctx, b.stage, "redis")
	if err != nil {
		return err
	}
	worker, err := b.stage.Start(ctx, servers.Worker("worker", program, clusterName, store.Dial, "", "--log-level", "warn"))
	if err != nil {
		return err
	}
	b.server = []*proc.Process{store, worker}
	b.gossip = cluster.Of(worker).Gossip
	return nil
}

// measure prints what locks of a worker cost.
func (b *bench) measure(ctx context.Context) error {
	client, err := b.newClient(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	for _, locks := range []struct {
		kind    string
		options []locking.Option
	}{
		{"locks in memory", nil},
		{fmt.Sprint("locks of ", longLease), []locking.Option{locking.TTL(longLease)}},
	} {
		try := func(ctx context.Context, name string) (context.Context, int64, func(), error) {
			lock, err := client.TryLock(ctx, name, locks.options...)
			if err != nil {
				return nil, 0, nil, err
			}
			return lock.Context(), lock.Token(), func() {
				if err := lock.Unlock(ctx); err != nil {
					fail(err)
				}
			}, nil
		}
		turn := turn{clients: []lockers.Enter{try}, callers: b.callers, keys: keysEach, time: warmUp}
		if _, err := turn.run(ctx); err != nil {
			return err
		}
		turn.time = b.time
		full, err := b.part(ctx, turn, locks.kind+", as fast as they can")
		if err != nil {
			return err
		}
		turn.rate = full / 2
		if _, err := b.part(ctx, turn, locks.kind+", half of that"); err != nil {
			return err
		}
	}
	return nil
}

// part prints what a turn comes to, and returns how many locks the callers took a second. An operation is a
// lock that is taken, or one that is given back.
func (b *bench) part(ctx context.Context, t turn, what string) (rate float64, err error) {
	scripts, err := b.scripts(ctx)
	if err != nil {
		return 0, err
	}
	server, own := b.cpu(), proc.CPUTime(0)
	o, err := t.run(ctx)
	if err != nil {
		return 0, err
	}
	server, own = b.cpu()-server, proc.CPUTime(0)-own
	after, err := b.scripts(ctx)
	if err != nil {
		return 0, err
	}
	rate = o.rate(t.time)
	operations := time.Duration(max(2*o.all, 1))
	fmt.Fprintf(b.out, "%d callers, %s: %.0f operations/s; server: %v of CPU time each, %.2f cores, %.0f operations/s and core; clients: %v each\n",
		b.callers, what, 2*rate, server/operations, server.Seconds()/t.time.Seconds(), float64(operations)/server.Seconds(), own/operations)
	for _, h := range []struct {
		call string
		*hdrhistogram.Histogram
	}{{"TryLock", o.taken}, {"Unlock", o.unlock}} {
		at := func(q float64) time.Duration { return time.Duration(h.ValueAtQuantile(q)).Round(10 * time.Microsecond) }
		fmt.Fprintf(b.out, "  %-8s p50 %v  p99 %v  p99.9 %v\n", h.call, at(50), at(99), at(99.9))
	}
	fmt.Fprintf(b.out, "  %-8s %.3f scripts for each lock\n", "store", float64(after-scripts)/float64(max(o.all, 1)))
	return rate, nil
}

// scripts returns how many scripts the store has run.
func (b *bench) scripts(ctx context.Context) (int64, error) {
	calls, err := servers.Calls(ctx, b.server[0].Dial)
	return calls["evalsha"], err
}

func (b *bench) cpu() (sum time.Duration) {
	for _, p := range b.server {
		sum += proc.CPU(p)
	}
	return sum
}

// turn has callers take a lock and give it back again and again.
type turn struct {
	clients []lockers.Enter
	callers int
	keys    int // of each caller; 0: one for all
	time    time.Duration
	rate    float64 // locks a second, which count from when they were due; 0: as many as they can
}

// outcome is what a turn has come to.
type outcome struct {
	pairs         []int // of a lock and its unlock within the time, by caller
	all           int   // pairs, those that ended later too
	taken, unlock *hdrhistogram.Histogram
}

func (o *outcome) rate(d time.Duration) float64 {
	sum := 0
	for _, n := range o.pairs {
		sum += n
	}
	return float64(sum) / d.Seconds()
}

// fairness is the least number of a caller's pairs over the most.
func (o *outcome) fairness() float64 {
	return float64(slices.Min(o.pairs)) / float64(max(slices.Max(o.pairs), 1))
}

// run runs the turn. Each pair counts its key's one up, as whoever has it alone may.
func (t *turn) run(ctx context.Context) (*outcome, error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	o := &outcome{pairs: make([]int, t.callers), taken: load.NewHistogram(), unlock: load.NewHistogram()}
	var counts sync.Map // *atomic.Int64 by key
	var mu sync.Mutex   // of o
	end := time.Now().Add(t.time)
	call := func(id int) {
		taken, unlock, due, n := load.NewHistogram(), load.NewHistogram(), time.Now(), 0
		for ; time.Now().Before(end) && ctx.Err() == nil; n++ {
			if t.rate > 0 {
				due = due.Add(time.Duration(rand.ExpFloat64() * float64(t.callers) / t.rate * float64(time.Second)))
				time.Sleep(time.Until(due))
			} else {
				due = time.Now()
			}
			key := "hot"
			if t.keys > 0 {
				key = fmt.Sprintf("caller-%d-%d", id, n%t.keys)
			}
			_, _, leave, err := t.clients[id%len(t.clients)](ctx, key)
			if err != nil {
				fail(err)
				break
			}
			locked := time.Now()
			count, _ := counts.LoadOrStore(key, new(atomic.Int64))
			before := count.(*atomic.Int64).Load()
			count.(*atomic.Int64).Store(before + 1)
			leave()
			done := time.Now()
			if done.Before(end) {
				o.pairs[id]++
			}
			load.Record(taken, locked.Sub(due))
			load.Record(unlock, done.Sub(locked))
		}
		mu.Lock()
		defer mu.Unlock()
		o.taken.Merge(taken)
		o.unlock.Merge(unlock)
		o.all += n
	}
	var all sync.WaitGroup
	for id := range t.callers {
		all.Go(func() { call(id) })
	}
	all.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	lost := int64(o.all)
	for _, count := range counts.Range {
		lost -= count.(*atomic.Int64).Load()
	}
	if lost != 0 {
		return nil, fmt.Errorf("two had a lock at once: %d of the counts are lost", lost)
	}
	return o, nil
}

// own is the name of Keyway's locks.
const own = "keyway"

// scenes are what is compared.
var scenes = []struct {
	title   string
	clients int
	keys    int // of each caller; 0: one for all
}{
	{"uncontended: %d callers, each with keys of his own, of 1 client", 1, keysEach},
	{"contended: %d callers of one key, of 1 client", 1, 0},
	{"contended: %d callers of one key, of 3 clients in one process", mostClients, 0},
}

// mostClients is how many clients a scene has, at most.
const mostClients = 3

// compare lets the locks of others take turns with Keyway's at each of the scenes, in rounds.
func (b *bench) compare(ctx context.Context) error {
	names := append([]string{own}, b.peers...)
	clients := make([][]lockers.Enter, len(names))
	for i, name := range names {
		connect, err := b.connector(ctx, name)
		for err == nil && len(clients[i]) < mostClients {
			var enter lockers.Enter
			var end func()
			if enter, end, err = connect(); err == nil {
				defer end()
				clients[i] = append(clients[i], enter)
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for _, scene := range scenes {
		rates, fairness := make([]report.Series, len(names)), make([]report.Series, len(names))
		t := turn{callers: min(b.callers, mostCallers), keys: scene.keys}
		for range b.rounds {
			for i, name := range names {
				t.clients = clients[i][:scene.clients]
				var o *outcome
				for _, t.time = range []time.Duration{warmUp / 2, b.time} {
					var err error
					if o, err = t.run(ctx); err != nil {
						return fmt.Errorf("%s: %w", name, err)
					}
				}
				rates[i], fairness[i] = append(rates[i], o.rate(t.time)), append(fairness[i], o.fairness())
			}
		}
		fmt.Fprintf(b.out, scene.title+"\n", t.callers)
		for i, name := range names {
			line := fmt.Sprintf("  %-10s %8.0f pairs/s  fairness %.2f", name, rates[i].Median(), fairness[i].Median())
			if ratios := rates[0].Over(rates[i]); i > 0 {
				line += fmt.Sprintf("  %s is %.1f × (%s)", own, ratios.Median(), ratios.Spread("%.1f"))
			}
			fmt.Fprintln(b.out, line)
		}
	}
	return nil
}

// connector starts the server of a kind of locks, and returns what makes a client of it.
func (b *bench) connector(ctx context.Context, name string) (connect func() (lockers.Enter, func(), error), err error) {
	clients := func(addr string) func() (lockers.Enter, func(), error) {
		return func() (lockers.Enter, func(), error) { return lockers.New(name, []string{addr}, peerTTL) }
	}
	switch name {
	case own:
		return func() (lockers.Enter, func(), error) {
			client, err := b.newClient(ctx)
			if err != nil {
				return nil, nil, err
			}
			return lockers.Keyway(client), func() { _ = client.Close() }, nil
		}, nil
	case "etcd":
		spec, err := servers.Etcd(name, filepath.Join(b.stage.Dir, name))
		if err != nil {
			return nil, err
		}
		_, err = b.stage.Start(ctx, spec)
		return clients("http://" + spec.Dial), err
	case "lock", "redislock", "redsync":
		server, err := servers.StartRedis(ctx, b.stage, name)
		if err != nil {
			return nil, err
		}
		return clients(server.Dial), nil
	}
	return nil, cli.Usagef("-peers: there is no %q; there are etcd, lock, redislock and redsync", name)
}
