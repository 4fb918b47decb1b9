package worker_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/policy"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// frames counts the frames that come on a link's connection, by their kind.
type frames struct {
	net.Conn
	kinds [16]atomic.Int64
	skip  int // bytes of the payload or preface that are to come
	head  []byte
}

// The kinds of frames that say whether a request waits (docs/link.md).
const (
	waitingFrame = 12
	begunFrame   = 13
)

func (f *frames) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	for p = p[:n]; len(p) > 0; {
		if skip := min(f.skip, len(p)); skip > 0 {
			f.skip, p = f.skip-skip, p[skip:]
			continue
		}
		f.head, p = append(f.head, p[0]), p[1:]
		if len(f.head) == 12 {
			first := binary.BigEndian.Uint32(f.head)
			f.skip, f.head = int(first>>8), f.head[:0]
			f.kinds[first&0xf].Add(1)
		}
	}
	return n, err
}

// crowd sends requests to a worker that dies.
type crowd struct {
	worker *worker.Worker
	client *link.Client
	policy []byte // of the requests
	conn   atomic.Pointer[frames]
	server *worker.Server
	wg     sync.WaitGroup
	lost   atomic.Int64 // requests that may have run
	unrun  atomic.Int64 // ones that have not
}

func newCrowd(t *testing.T, h func(w *worker.Worker) http.Handler) *crowd {
	t.Helper()
	return crowdAt(t, site.New(t, 16).StartReady(), h)
}

func crowdAt(t *testing.T, w *site.Worker, h func(w *worker.Worker) http.Handler) *crowd {
	t.Helper()
	c := &crowd{worker: w.Worker, server: w.NewServer(h(w.Worker))}
	l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))
	c.wg.Go(func() { _ = c.server.Serve(l) })
	c.client = linkTo(t, w, l.Addr().String())
	c.client.Dial = func(ctx context.Context) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
		f := &frames{Conn: conn, skip: len("\x00keyway\n")}
		if err == nil {
			c.conn.CompareAndSwap(nil, f)
		}
		return f, err
	}
	return c
}

func (c *crowd) send(t *testing.T, n int) {
	for range n {
		c.wg.Go(func() {
			req := &link.Request{Method: "POST", Target: "/stock/k", Host: "x", Key: "k", Policy: c.policy, Body: strings.NewReader("x"), ContentLength: 1}
			answer, err := c.client.Do(t.Context(), req)
			switch {
			case err == nil:
				answer.Body.Close()
			case errors.Is(err, link.ErrNotStarted):
				c.unrun.Add(1)
			case errors.Is(err, link.ErrLost):
				c.lost.Add(1)
			default:
				t.Error(err)
			}
		})
	}
}

func (c *crowd) told(t *testing.T, kind int, n int64) {
	t.Helper()
	kit.Eventually(t, fmt.Sprintf("%d frames of kind %d", n, kind), func() bool {
		f := c.conn.Load()
		return f != nil && f.kinds[kind].Load() == n
	})
}

// A worker that dies has run the request that holds the key, and of those that wait
// for the key its router knows that they have not.
func TestTrapWaitersAtADeadWorkerHaveNotRun(t *testing.T) {
	release := make(chan struct{})
	var ran atomic.Int64
	c := newCrowd(t, func(w *worker.Worker) http.Handler {
		return w.Handler(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			ran.Add(1)
			<-release
		}))
	})
	c.send(t, 20)
	kit.Eventually(t, "one runs", func() bool { return ran.Load() == 1 })
	c.told(t, waitingFrame, 19)
	release <- struct{}{}
	kit.Eventually(t, "another one runs", func() bool { return ran.Load() == 2 })
	c.told(t, begunFrame, 1)
	c.server.Close()
	close(release)
	c.wg.Wait()
	if c.lost.Load() != 1 || c.unrun.Load() != 18 || ran.Load() != 2 {
		t.Errorf("%d lost, %d have not run, %d have; want 1, 18 and 2", c.lost.Load(), c.unrun.Load(), ran.Load())
	}
}

// So it is with batches: all that a batch has taken may have run.
func TestTrapBatchesOfADeadWorker(t *testing.T) {
	release := make(chan struct{})
	var ran atomic.Int64
	c := newCrowd(t, func(w *worker.Worker) http.Handler {
		return w.Handler(shop(t, w, func(items []*worker.Item[sale, int]) {
			ran.Add(int64(len(items)))
			<-release
		}))
	})
	c.send(t, 1)
	kit.Eventually(t, "a batch of one runs", func() bool { return ran.Load() == 1 })
	c.send(t, 10)
	c.told(t, waitingFrame, 10)
	kit.Eventually(t, "they wait for the key", func() bool { return kit.Must(c.worker.Explain("k")).Waiting == 10 })
	release <- struct{}{}
	kit.Eventually(t, "a batch of those that have waited runs", func() bool { return ran.Load() == 11 })
	c.told(t, begunFrame, 10)
	c.send(t, 5)
	c.told(t, waitingFrame, 15)
	c.server.Close()
	close(release)
	c.wg.Wait()
	if c.lost.Load() != 10 || c.unrun.Load() != 5 || ran.Load() != 11 {
		t.Errorf("%d lost, %d have not run, %d have; want 10, 5 and 11", c.lost.Load(), c.unrun.Load(), ran.Load())
	}
}

// A request whose route has a rate first waits for its partition. Its router knows when it no longer does, even if it has
// its key at once then.
func TestTrapARequestThatWaitedForItsPartitionHasBegun(t *testing.T) {
	s := site.New(t, 16)
	store := &site.CutStore{Store: s.Store}
	store.Set(true)
	w := s.Start(func(cfg *worker.Config) { cfg.Store, cfg.AwaitTimeout = store, time.Minute })
	release := make(chan struct{})
	var ran atomic.Int64
	c := crowdAt(t, w, func(w *worker.Worker) http.Handler {
		return w.Handler(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			ran.Add(1)
			<-release
		}))
	})
	c.policy = (&policy.Policy{Route: "r", Rate: policy.Rate{PerSecond: 1, Burst: 10}}).Append(nil)
	c.send(t, 1)
	c.told(t, waitingFrame, 1)
	store.Set(false)
	kit.Eventually(t, "it runs", func() bool { return ran.Load() == 1 })
	c.server.Close()
	close(release)
	c.wg.Wait()
	if c.lost.Load() != 1 || c.unrun.Load() != 0 {
		t.Errorf("%d lost, %d have not run, %d have; want 1, 0 and 1", c.lost.Load(), c.unrun.Load(), ran.Load())
	}
}
