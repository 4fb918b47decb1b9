package placement

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/client"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/balancer"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// TestMachine prints a table of docs/placement.md: a cluster of the product in virtual time. Its workers, their machines
// and balancers, the lock service and the ring are real, and the load is what they measure. The network, the membership
// and the store are in memory, and executions only take time. The worker that balances dies on the way.
func TestMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kit.EmptyPools(t)
		c := &product{Site: site.New(t, 512), running: map[string]bool{}, tokens: map[string]string{}}
		c.App = c
		for range 6 {
			c.start()
		}
		time.Sleep(5 * time.Second)
		ctx, stop := context.WithCancel(t.Context())
		c.load(ctx)
		var table strings.Builder
		ratio := 0.0
		for minute := 1; minute <= 6; minute++ {
			time.Sleep(40 * time.Second)
			before := c.executions()
			time.Sleep(20 * time.Second)
			ratio = largest(c.executions(), before)
			fmt.Fprintf(&table, "\n| %d | %.2f | %d | %d |", minute, ratio, strings.Count(c.text(), "\n"), c.failures())
			if minute == 3 {
				c.kill(0)
			}
		}
		stop()
		c.calls.Wait()
		c.close()
		t.Logf("seed %d\n| minute | largest load of a worker over the mean | placements | failed requests |%s\n%d requests, %d overlaps, %d regressions of tokens", *seed, table.String(), c.sent, c.overlaps, c.regressions)
		if c.overlaps+c.regressions > 0 {
			t.Error("a key was at two workers")
		}
		if ratio > 1.2 {
			t.Errorf("the largest load is %.2f of the mean at the end", ratio)
		}
	})
}

// product is a cluster that is balanced, and the app of its workers.
type product struct {
	*site.Site
	workers []*site.Worker
	ends    []func()
	calls   sync.WaitGroup

	mu                                  sync.Mutex // guards what follows
	running                             map[string]bool
	tokens                              map[string]string // the latest, by key
	sent, failed, overlaps, regressions int
}

func (c *product) start() {
	w := c.StartServing(func(cfg *worker.Config) { cfg.Logger = slog.New(slog.DiscardHandler) })
	caller := site.NewClient(c.T, client.Config{Members: w.Member, Dial: c.Network.Dial})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		balancer.Run(ctx, balancer.Config{
			Name: w.Member.Self().Name, Members: w.Member, Locks: locking.Of(caller), Loads: caller.Operator().Loads, Logger: slog.New(slog.DiscardHandler),
			Place: func(ctx context.Context, from, to string) (string, error) {
				return c.Store.Replace(ctx, records.Placements, from, to)
			},
		})
	}()
	c.workers = append(c.workers, w)
	c.ends = append(c.ends, func() { cancel(); <-ended })
}

func (c *product) kill(i int) {
	c.Kill(c.workers[i])
	c.ends[i]()
	c.workers, c.ends = slices.Delete(c.workers, i, i+1), slices.Delete(c.ends, i, i+1)
}

func (c *product) close() {
	for _, end := range c.ends {
		end()
	}
}

func (c *product) text() string { return c.workers[0].Member.View().Placements }

func (c *product) failures() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

// load sends 200 requests a second until ctx ends, for 300 keys by Zipf's law.
func (c *product) load(ctx context.Context) {
	const keys, rate, exponent = 300, 200.0, 0.8
	sum := 0.0
	for i := range keys {
		sum += math.Pow(float64(i+1), -exponent)
	}
	caller := c.NewClient()
	for i := range keys {
		random := rand.New(rand.NewPCG(*seed, uint64(i)))
		every := sum / rate / math.Pow(float64(i+1), -exponent) // in seconds
		c.calls.Go(func() {
			for ctx.Err() == nil {
				select {
				case <-time.After(time.Duration(random.ExpFloat64() * every * float64(time.Second))):
					c.calls.Go(func() { c.call(ctx, caller, fmt.Sprint("key-", i)) })
				case <-ctx.Done():
				}
			}
		})
	}
}

func (c *product) call(ctx context.Context, caller *client.Client, key string) {
	req := kit.Must(http.NewRequestWithContext(ctx, http.MethodGet, "http://app/", nil))
	req.Header.Set(gateway.HeaderKey, key)
	res, err := caller.RoundTrip(req)
	if err == nil {
		_, err = io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent++
	if ctx.Err() == nil && (err != nil || res.StatusCode != http.StatusOK) {
		c.failed++
	}
}

// ServeHTTP is the app: it works on a request for 30 ms.
func (c *product) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key, token := r.Header.Get(gateway.HeaderKey), r.Header.Get(gateway.HeaderToken)
	c.mu.Lock()
	if c.running[key] {
		c.overlaps++
	}
	if last := c.tokens[key]; len(token) < len(last) || len(token) == len(last) && token <= last {
		c.regressions++
	}
	c.running[key], c.tokens[key] = true, token
	c.mu.Unlock()
	select {
	case <-time.After(30 * time.Millisecond):
	case <-r.Context().Done():
	}
	c.mu.Lock()
	c.running[key] = false
	c.mu.Unlock()
}

// executions returns how many each worker has had.
func (c *product) executions() map[string]uint64 {
	all := make(map[string]uint64)
	for _, w := range c.workers {
		s := w.Status()
		all[s.Name] = uint64(s.Executions)
	}
	return all
}

// largest returns the largest number of executions since before over the mean of all.
func largest(now, before map[string]uint64) float64 {
	most, sum := 0.0, 0.0
	for name, n := range now {
		since := float64(n - before[name])
		most, sum = max(most, since), sum+since
	}
	return most / (sum / float64(len(now)))
}
