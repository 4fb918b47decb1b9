package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/keyway-go/keyway/internal/netproxy"
)

// links stand between the router and each worker, and trouble the connections
// that carry requests: they cut, stall and delay them at random.
type links struct {
	now func() time.Duration

	mu      sync.Mutex // guards what follows
	proxies []*netproxy.Proxy
	cuts    []time.Duration // when connections were cut
	stalls  int
	delays  int
}

// add returns the flags with which a worker listens behind a proxy.
func (l *links) add() ([]string, error) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := free.Addr().String()
	free.Close()
	p, err := netproxy.New(addr)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.proxies = append(l.proxies, p)
	return []string{"--listen", addr, "--advertise", p.Addr()}, nil
}

// trouble goes on until ctx ends, and leaves every link whole.
func (l *links) trouble(ctx context.Context, rng *rand.Rand) {
	for ctx.Err() == nil {
		sleep(ctx, 100*time.Millisecond+upTo(rng, 400*time.Millisecond))
		l.mu.Lock()
		p := l.proxies[rng.IntN(len(l.proxies))]
		l.mu.Unlock()
		d := netproxy.Direction(rng.IntN(2))
		switch rng.IntN(3) {
		case 0:
			l.cut(p, d, rng.IntN(2) == 0)
		case 1:
			l.count(&l.stalls)
			p.Set(d, netproxy.Fault{Stall: true})
			sleep(ctx, 50*time.Millisecond+upTo(rng, time.Second))
			p.Heal()
		case 2:
			l.count(&l.delays)
			p.Set(d, netproxy.Fault{Delay: upTo(rng, 30*time.Millisecond)})
			sleep(ctx, 100*time.Millisecond+upTo(rng, 500*time.Millisecond))
			p.Heal()
		}
	}
}

// cut cuts a link's connections, at once or when the next bytes are on their
// way.
func (l *links) cut(p *netproxy.Proxy, d netproxy.Direction, atOnce bool) {
	if atOnce {
		p.Cut()
	} else {
		p.CutNext(d)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cuts = append(l.cuts, l.now())
}

func (l *links) count(n *int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*n++
}

func (l *links) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.proxies {
		p.Close()
	}
}

// cutDuring reports whether a link was cut between two moments, or so shortly
// before that the cut may have waited for the bytes of a request.
func (l *links) cutDuring(from, to time.Duration) bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, at := range l.cuts {
		if at >= from-cutWait && at <= to {
			return true
		}
	}
	return false
}

// cutWait is how long a cut that waits for bytes may wait for them.
const cutWait = time.Second

func (l *links) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("%d times cut, %d stalled, %d delayed", len(l.cuts), l.stalls, l.delays)
}
