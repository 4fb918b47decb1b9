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
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/redis/go-redis/v9"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/loadtest/internal/proc"
	"github.com/keyway-go/keyway/loadtest/internal/servers"
	"github.com/keyway-go/keyway/localmutex/locking"
	"github.com/keyway-go/keyway/ring"
)

func main() { os.Exit(cli.Main("locks", run)) }

const (
	clusterName = "locks"
	warmUp      = time.Second
	longLease   = time.Minute // longer than the session TTL
	about       = `Locks measures how many locks a worker takes and gives back for clients elsewhere, what
that costs it, and how long a call takes at half of that rate; for locks in its memory and
for locks of a minute, which are written to the store.
`
)

// bench is the measurement.
type bench struct {
	time    time.Duration
	callers int
	keys    int
	worker  string   // program
	peers   []string // to compare with; nil for none
	rounds  int      // of the comparison

	out     io.Writer
	server  []*proc.Process // the worker, and its store
	store   *redis.Client
	gossip  string // address of the worker
	client  *keyway.Client
	options []locking.Option // of the locks that are measured
}

func run(ctx context.Context, args []string, stdout, _ io.Writer) (err error) {
	b := &bench{out: stdout}
	f := cli.NewFlags("locks", about)
	f.Duration(&b.time, "t", 5*time.Second, time.Millisecond, "how `long` each part lasts, after a second, or each turn of a comparison")
	f.Int(&b.callers, "callers", 256, 1, "`number` of callers at once, 64 at most in a comparison")
	f.Int(&b.keys, "keys", 100, 1, "`number` of keys of each caller")
	f.String(&b.worker, "worker", "", "`program` to use; by default it is built")
	f.List(&b.peers, "peers", ",", nil, "`locks` to compare with, with commas between: etcd, lock (Keyway's Redis lock), redislock, redsync")
	f.Int(&b.rounds, "rounds", 3, 1, "`number` of turns that each has in a comparison")
	if err := f.Parse(args, stdout); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "keyway-locks-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	stage := proc.NewStage(dir)
	defer stage.Close()
	if err := b.start(ctx, stage, dir); err != nil {
		return err
	}
	defer b.store.Close()
	if b.peers != nil {
		all, stop, err := b.startPeers(ctx, stage, dir)
		if err != nil {
			return err
		}
		defer stop()
		return b.compare(ctx, all)
	}
	if b.client, err = b.newClient(ctx); err != nil {
		return err
	}
	defer b.client.Close()
	return b.measure(ctx)
}

func (b *bench) newClient(ctx context.Context) (*keyway.Client, error) {
	return keyway.NewClient(ctx, keyway.ClientConfig{Join: []string{b.gossip}, Settings: ring.Settings{Cluster: clusterName}})
}

// start starts the worker.
func (b *bench) start(ctx context.Context, stage *proc.Stage, dir string) error {
	if b.worker == "" {
		programs, err := cluster.Build(ctx, dir)
		if err != nil {
			return err
		}
		b.worker = programs.Worker
	}
	spec, err := servers.Redis("redis", dir)
	if err != nil {
		return err
	}
	store, err := stage.Start(ctx, spec)
	if err != nil {
		return err
	}
	b.store = redis.NewClient(&redis.Options{Addr: spec.Dial})
	worker, err := stage.Start(ctx, servers.Worker("worker", b.worker, clusterName, spec.Dial, "", "--log-level", "warn"))
	if err != nil {
		return err
	}
	b.server = []*proc.Process{store, worker}
	_, b.gossip = servers.Addrs(worker)
	return nil
}

func (b *bench) measure(ctx context.Context) error {
	for _, locks := range []struct {
		kind    string
		options []locking.Option
	}{
		{"locks in memory", nil},
		{fmt.Sprint("locks of ", longLease), []locking.Option{locking.TTL(longLease)}},
	} {
		b.options = locks.options
		if _, err := b.part(ctx, warmUp, 0); err != nil {
			return err
		}
		full, err := b.part(ctx, b.time, 0)
		if err != nil {
			return err
		}
		b.print(locks.kind+", as fast as they can", full)
		half, err := b.part(ctx, b.time, full.rate()/2)
		if err != nil {
			return err
		}
		b.print(locks.kind+", half of that", half)
	}
	return nil
}

// scripts returns how many scripts the store has run.
func (b *bench) scripts(ctx context.Context) (n int64, err error) {
	stats, err := b.store.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(stats, "cmdstat_evalsha:calls=")
	calls, _, _ := strings.Cut(rest, ",")
	return strconv.ParseInt(calls, 10, 64)
}

// outcome is what a part has come to. An operation is a lock that is taken, or one that is given back.
type outcome struct {
	time           time.Duration
	operations     atomic.Int64
	scripts        int64         // that the store has run
	server, client time.Duration // of CPU time

	mu            sync.Mutex // guards what follows
	taken, unlock *hdrhistogram.Histogram
}

func (o *outcome) rate() float64 { return float64(o.operations.Load()) / o.time.Seconds() }

func (b *bench) print(what string, o *outcome) {
	each := func(d time.Duration) time.Duration { return d / time.Duration(max(o.operations.Load(), 1)) }
	fmt.Fprintf(b.out, "%d callers, %s: %.0f operations/s; server: %v of CPU time each, %.2f cores, %.0f operations/s and core; clients: %v each\n",
		b.callers, what, o.rate(), each(o.server), o.server.Seconds()/o.time.Seconds(), float64(o.operations.Load())/o.server.Seconds(), each(o.client))
	for _, h := range []struct {
		call string
		*hdrhistogram.Histogram
	}{{"TryLock", o.taken}, {"Unlock", o.unlock}} {
		fmt.Fprintf(b.out, "  %-8s p50 %v  p99 %v  p99.9 %v\n", h.call, at(h.Histogram, 50), at(h.Histogram, 99), at(h.Histogram, 99.9))
	}
	fmt.Fprintf(b.out, "  %-8s %.3f scripts for each lock\n", "store", float64(o.scripts)/float64(max(o.operations.Load()/2, 1)))
}

func at(h *hdrhistogram.Histogram, quantile float64) time.Duration {
	return time.Duration(h.ValueAtQuantile(quantile)).Round(10 * time.Microsecond)
}

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(int64(time.Microsecond), int64(time.Minute), 3)
}

// part lets all callers work for a while: at so many operations a second, which
// count from when they were due, or 0 for as many as they can.
func (b *bench) part(ctx context.Context, d time.Duration, rate float64) (*outcome, error) {
	o := &outcome{taken: newHistogram(), unlock: newHistogram()}
	scripts, err := b.scripts(ctx)
	if err != nil {
		return nil, err
	}
	before, own, began := b.cpu(), proc.CPUTime(os.Getpid()), time.Now()
	failed := make(chan error, b.callers)
	var all sync.WaitGroup
	for i := range b.callers {
		all.Go(func() {
			if err := b.call(ctx, o, i, began.Add(d), rate/float64(b.callers)); err != nil {
				failed <- err
			}
		})
	}
	all.Wait()
	o.time, o.server, o.client = time.Since(began), b.cpu()-before, proc.CPUTime(os.Getpid())-own
	select {
	case err := <-failed:
		return nil, err
	default:
	}
	o.scripts, err = b.scripts(ctx)
	o.scripts -= scripts
	return o, err
}

func (b *bench) cpu() (sum time.Duration) {
	for _, p := range b.server {
		sum += p.CPU()
	}
	return sum
}

// call is one caller: it takes a lock and gives it back, again and again.
func (b *bench) call(ctx context.Context, o *outcome, id int, end time.Time, rate float64) error {
	taken, unlock := newHistogram(), newHistogram()
	due := time.Now()
	for n := 0; time.Now().Before(end) && ctx.Err() == nil; n++ {
		if rate > 0 {
			due = due.Add(time.Duration(rand.ExpFloat64() * 2 / rate * float64(time.Second)))
			time.Sleep(time.Until(due))
		} else {
			due = time.Now()
		}
		lock, err := b.client.TryLock(ctx, fmt.Sprintf("caller-%d-%d", id, n%b.keys), b.options...)
		if err != nil {
			return err
		}
		locked := time.Now()
		if err := lock.Unlock(ctx); err != nil {
			return err
		}
		o.operations.Add(2)
		_ = taken.RecordValue(int64(locked.Sub(due)))     // fails beyond a minute, which
		_ = unlock.RecordValue(int64(time.Since(locked))) // no call takes
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.taken.Merge(taken)
	o.unlock.Merge(unlock)
	return context.Cause(ctx)
}
