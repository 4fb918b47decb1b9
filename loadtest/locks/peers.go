//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/keyway-go/keyway/fallback/lock"
	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/loadtest/internal/lockers"
	"github.com/keyway-go/keyway/loadtest/internal/proc"
	"github.com/keyway-go/keyway/loadtest/internal/report"
	"github.com/keyway-go/keyway/loadtest/internal/servers"
)

const (
	own         = "keyway"
	peerTTL     = 10 * time.Second // as Keyway's
	peerPoll    = 2 * time.Millisecond
	mostCallers = 64 // of a comparison
)

// peer is a kind of locks, of which there may be several client objects.
type peer struct {
	name    string
	clients []lockers.Enter
}

// scenes are what is compared.
var scenes = []struct {
	title   string
	clients int
	key     func(caller, n int) string
}{
	{"uncontended: %d callers, each with keys of his own, of 1 client", 1, func(caller, n int) string { return fmt.Sprintf("caller-%d-%d", caller, n%100) }},
	{"contended: %d callers of one key, of 1 client", 1, func(int, int) string { return "hot" }},
	{"contended: %d callers of one key, of 3 clients in one process", 3, func(int, int) string { return "hot" }},
}

// mostClients is how many clients a scene has, at most.
const mostClients = 3

// startPeers makes the clients of locks of each kind, and starts what these need.
func (b *bench) startPeers(ctx context.Context, stage *proc.Stage, dir string) (all []peer, stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, f := range stops {
			f()
		}
	}
	for _, name := range append([]string{own}, b.peers...) {
		p := peer{name: name}
		connect, err := b.maker(ctx, stage, dir, name)
		for range mostClients {
			if err != nil {
				break
			}
			var enter lockers.Enter
			var end func()
			if enter, end, err = connect(); err == nil {
				p.clients, stops = append(p.clients, enter), append(stops, end)
			}
		}
		if err != nil {
			stop()
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, p)
	}
	return all, stop, nil
}

// maker starts the server of a kind of locks, and returns what makes a client of it.
func (b *bench) maker(ctx context.Context, stage *proc.Stage, dir, name string) (func() (lockers.Enter, func(), error), error) {
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
		client, err := proc.FreeAddr()
		if err != nil {
			return nil, err
		}
		other, err := proc.FreeAddr()
		if err != nil {
			return nil, err
		}
		spec := servers.Etcd(filepath.Join(dir, name), client, other)
		spec.Name, spec.Dial = name, client
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			return nil, err
		}
		if _, err := stage.Start(ctx, spec); err != nil {
			return nil, err
		}
		return func() (lockers.Enter, func(), error) { return lockers.Etcd([]string{"http://" + client}, peerTTL) }, nil
	case "lock", "redislock", "redsync":
		spec, err := servers.Redis(name, dir)
		if err != nil {
			return nil, err
		}
		if _, err := stage.Start(ctx, spec); err != nil {
			return nil, err
		}
		return func() (lockers.Enter, func(), error) {
			client := redis.NewClient(&redis.Options{Addr: spec.Dial, ContextTimeoutEnabled: true})
			end := func() { _ = client.Close() }
			switch name {
			case "redsync":
				return lockers.Redsync([]*redis.Client{client}, peerTTL), end, nil
			case "redislock":
				return lockers.Redislock(client, peerTTL, peerPoll), end, nil
			}
			locker, err := lock.New(client, lock.Config{TTL: peerTTL})
			if err != nil {
				return nil, nil, err
			}
			return lockers.Keyway(locker), func() { _, _ = locker.Close(), client.Close() }, nil
		}, nil
	}
	return nil, cli.Usagef("-peers: there is no %q; there are etcd, lock, redislock and redsync", name)
}

// compare lets the peers take turns at each of the scenes, in rounds.
func (b *bench) compare(ctx context.Context, all []peer) error {
	b.callers = min(b.callers, mostCallers)
	for _, scene := range scenes {
		rates, fairness := make([][]float64, len(all)), make([][]float64, len(all))
		for range b.rounds {
			for i, p := range all {
				if _, _, err := b.turn(ctx, p.clients[:scene.clients], scene.key, warmUp/2); err != nil {
					return fmt.Errorf("%s: %w", p.name, err)
				}
				rate, fair, err := b.turn(ctx, p.clients[:scene.clients], scene.key, b.time)
				if err != nil {
					return fmt.Errorf("%s: %w", p.name, err)
				}
				rates[i], fairness[i] = append(rates[i], rate), append(fairness[i], fair)
			}
		}
		fmt.Fprintf(b.out, scene.title+"\n", b.callers)
		for i, p := range all {
			line := fmt.Sprintf("  %-10s %8.0f pairs/s  fairness %.2f", p.name, report.Median(rates[i]), report.Median(fairness[i]))
			if i > 0 {
				ratios := make([]float64, b.rounds)
				for r := range ratios {
					ratios[r] = rates[0][r] / rates[i][r]
				}
				line += fmt.Sprintf("  %s is %.1f × (%.1f–%.1f)", own, report.Median(ratios), slices.Min(ratios), slices.Max(ratios))
			}
			fmt.Fprintln(b.out, line)
		}
	}
	return nil
}

// turn has callers take a lock and give it back again and again for that long. It returns how many pairs they
// did a second, and the least number of a caller's over the most. Each pair counts its key's one up, as whoever has
// it alone may.
func (b *bench) turn(ctx context.Context, clients []lockers.Enter, key func(caller, n int) string, d time.Duration) (rate, fairness float64, err error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var counts sync.Map // *atomic.Int64 by key
	pairs, late := make([]int, b.callers), make([]int, b.callers)
	end := time.Now().Add(d)
	var all sync.WaitGroup
	for id := range b.callers {
		enter := clients[id%len(clients)]
		all.Go(func() {
			for n := 0; time.Now().Before(end) && ctx.Err() == nil; n++ {
				name := key(id, n)
				_, _, leave, err := enter(ctx, name)
				if err != nil {
					fail(err)
					return
				}
				count, _ := counts.LoadOrStore(name, new(atomic.Int64))
				before := count.(*atomic.Int64).Load()
				count.(*atomic.Int64).Store(before + 1)
				leave()
				if time.Now().Before(end) {
					pairs[id]++
				} else {
					late[id]++
				}
			}
		})
	}
	all.Wait()
	if err := context.Cause(ctx); err != nil {
		return 0, 0, err
	}
	done, counted := 0, int64(0)
	for id := range b.callers {
		done += pairs[id]
		counted -= int64(pairs[id] + late[id])
	}
	counts.Range(func(_, count any) bool {
		counted += count.(*atomic.Int64).Load()
		return true
	})
	if counted != 0 {
		return 0, 0, fmt.Errorf("two had a lock at once: %d of the counts are lost", -counted)
	}
	return float64(done) / d.Seconds(), float64(slices.Min(pairs)) / float64(max(slices.Max(pairs), 1)), nil
}
