package historytest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/test/site"
)

// visits is an app behind workers, whose POST adds one to a counter and whose GET reads
// it.
type visits struct {
	*run
	runs, shared atomic.Int64 // executions, and answers of those that others have had before

	mu       sync.Mutex // guards what follows
	calls    map[string]*call
	answered map[string]bool // executions by their numbers
}

// ServeHTTP implements [http.Handler].
func (s *visits) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	token, _ := strconv.ParseInt(r.Header.Get(gateway.HeaderToken), 10, 64)
	s.mu.Lock()
	c := s.calls[r.Header.Get("X-Call")]
	s.mu.Unlock()
	key, _ := strconv.Atoi(r.Header.Get("X-Key")[len(keyName(0))-1:])
	if before := s.tokens[key].Swap(token); before >= token {
		s.t.Errorf("%s: token %d after %d", keyName(key), token, before)
	}
	n := s.values[key].Load()
	if c != nil {
		n++
	}
	rw.Header().Set("X-Run", fmt.Sprint(s.runs.Add(1)))
	if !s.work(r.Context()) {
		rw.WriteHeader(http.StatusInternalServerError)
		return
	}
	if c != nil {
		s.values[key].Store(n)
		if !c.wrote.CompareAndSwap(0, n) {
			s.t.Errorf("%s: a request has run twice", keyName(key))
		}
	}
	fmt.Fprint(rw, n)
}

// ask sends a request. An error means that nobody knows what became of it.
func (s *visits) ask(ctx context.Context, rt http.Handler, in input, id string) (n int64, err error) {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	r.Header.Set("X-Key", keyName(in.key))
	if in.way != read {
		r.Method = in.way
		r.Header.Set("X-Call", id)
	}
	out := httptest.NewRecorder()
	func() {
		defer func() {
			if recover() != nil { // the answer was broken off
				out.Code = 0
			}
		}()
		rt.ServeHTTP(out, r)
	}()
	if out.Code != http.StatusOK {
		return 0, fmt.Errorf("%d %s", out.Code, out.Body)
	}
	ran := out.Header().Get("X-Run")
	s.mu.Lock()
	if s.answered[ran] {
		s.shared.Add(1)
	}
	s.answered[ran] = true
	s.mu.Unlock()
	return strconv.ParseInt(out.Body.String(), 10, 64)
}

// Requests of a route that shares, through a router, while workers come, leave, crash
// and lose their store and clients leave, are as if each had happened at one moment
// between its call and its return.
func TestRequestsThatShare(t *testing.T) { bubble(t, testRequestsThatShare) }

func testRequestsThatShare(t *testing.T) {
	const clients, keys = 12, 3
	s := &visits{run: &run{world: newWorld(t, keys)}, calls: make(map[string]*call), answered: make(map[string]bool)}
	s.App, s.started = s, s.serve
	s.start()
	s.start()
	rt := s.NewRouter(router.Config{
		Routes: site.Routes(t, `name: a, key: "header:X-Key", mode: share`), Dial: s.Network.Dial, Limits: gateway.Limits{Hold: 4 * ttl},
	})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)

	var all sync.WaitGroup
	done := make(chan struct{})
	for id := range clients {
		random := rand.New(rand.NewPCG(seed, uint64(id)))
		all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				case <-time.After(time.Duration(random.IntN(3)*random.IntN(100)) * time.Millisecond):
				}
				in, name := input{key: random.IntN(keys), way: read}, fmt.Sprint(id, "/", i)
				c := new(call)
				if random.IntN(3) == 0 {
					in.way = http.MethodPost
					s.mu.Lock()
					s.calls[name] = c
					s.mu.Unlock()
				}
				ctx, cancel := context.WithCancel(t.Context())
				if random.IntN(8) == 0 {
					time.AfterFunc(time.Duration(random.IntN(60))*time.Millisecond, cancel)
				}
				op := porcupine.Operation{ClientId: id, Input: in, Call: s.clock.Add(1)}
				n, err := s.ask(ctx, rt, in, name)
				op.Return, op.Output = s.clock.Add(1), n
				cancel()
				s.historyMu.Lock()
				switch {
				case err == nil:
					s.history = append(s.history, op)
				case in.way != read:
					op.Output = c
					s.pending = append(s.pending, op)
				}
				s.historyMu.Unlock()
			}
		})
	}
	s.live(rand.New(rand.NewPCG(seed, clients)), events)
	close(done)
	all.Wait()
	for _, n := range s.nodes() {
		s.stop(n)
	}
	t.Logf("%d executions, and %d answers of those of others", s.runs.Load(), s.shared.Load())
	if s.shared.Load() == 0 {
		t.Error("no answer was shared")
	}
	s.check()
}
