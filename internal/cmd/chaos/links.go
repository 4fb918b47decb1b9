package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/keyway-go/keyway/internal/cluster/proc"
	"github.com/keyway-go/keyway/internal/test/netproxy"

	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// links stand between the router and each worker, and trouble the connections
// that carry requests: they cut, stall and delay them at random.
type links struct {
	mu     sync.Mutex // guards what follows
	all    []workerLink
	stalls int
	delays int
}

// workerLink is what stands between the router and one process.
type workerLink struct {
	worker string
	*netproxy.Proxy
}

// add returns the flags of a worker that listens behind a proxy.
func (l *links) add(worker string) ([]string, error) {
	addr, err := proc.FreeAddr()
	if err != nil {
		return nil, err
	}
	p, err := netproxy.New(addr)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, workerLink{worker, p})
	return []string{"--listen", addr, "--advertise", p.Addr()}, nil
}

// trouble goes on until ctx ends, and leaves every link whole.
func (l *links) trouble(ctx context.Context, rng *rand.Rand) {
	for ctx.Err() == nil {
		trial.Sleep(ctx, 100*time.Millisecond+trial.UpTo(rng, 400*time.Millisecond))
		l.mu.Lock()
		p := l.all[rng.IntN(len(l.all))]
		l.mu.Unlock()
		d := netproxy.Direction(rng.IntN(2))
		switch rng.IntN(3) {
		case 0:
			if rng.IntN(2) == 0 {
				p.Cut()
			} else {
				p.CutNext(d)
			}
		case 1:
			l.count(&l.stalls)
			p.Set(d, netproxy.Fault{Stall: true})
			trial.Sleep(ctx, 50*time.Millisecond+trial.UpTo(rng, time.Second))
			p.Heal()
		case 2:
			l.count(&l.delays)
			p.Set(d, netproxy.Fault{Delay: trial.UpTo(rng, 30*time.Millisecond)})
			trial.Sleep(ctx, 100*time.Millisecond+trial.UpTo(rng, 500*time.Millisecond))
			p.Heal()
		}
	}
}

func (l *links) count(n *int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*n++
}

func (l *links) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.all {
		p.Close()
	}
}

// cuts returns by the observer's clock when connections were cut, by the process at their end.
func (l *links) cuts(start time.Time) map[string][]time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[string][]time.Duration)
	for _, p := range l.all {
		for _, at := range p.Cuts() {
			all[p.worker] = append(all[p.worker], at.Sub(start))
		}
	}
	return all
}

// broke reports whether a request may have failed because a link was cut: that of the
// worker that ran it, or of any if none did, even if it was sent after that.
func broke(r *trial.Request, ran string, cuts map[string][]time.Duration) bool {
	for worker, all := range cuts {
		if r.Status == http.StatusBadGateway && (ran == "" || ran == worker) && slices.ContainsFunc(all, func(at time.Duration) bool {
			return at <= r.Recv && r.Recv <= at+trial.Noticed && (ran == "" || r.Send <= at)
		}) {
			return true
		}
	}
	return false
}

func (l *links) String() string {
	cuts := 0
	for _, all := range l.cuts(time.Time{}) {
		cuts += len(all)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("%d connections cut, %d times stalled, %d times delayed", cuts, l.stalls, l.delays)
}
