package router_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/workertest"
	"github.com/keyway-go/keyway/ring"
)

const ttl = 10 * time.Second // of the tests' clusters

// site is workers that take the link over connections in memory, and clients of
// them, in a bubble.
type site struct {
	*workertest.Cluster
	t    *testing.T
	mu   sync.Mutex
	at   map[string]*pipeListener // by address
	conn map[string][]net.Conn    // clients' ends, by address
	cut  map[string]bool          // addresses that nothing reaches
	deaf map[string]bool          // addresses of which nothing is heard, by connections that are there

	delay func(p []byte) time.Duration // of what clients write; nil for none
}

// wire is a client's end of a connection.
type wire struct {
	net.Conn
	site *site
	addr string
}

func (c *wire) Write(p []byte) (int, error) {
	if c.site.delay != nil {
		if d := c.site.delay(p); d > 0 {
			time.Sleep(d)
		}
	}
	return c.Conn.Write(p)
}

func (c *wire) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		c.site.mu.Lock()
		deaf := c.site.deaf[c.addr]
		c.site.mu.Unlock()
		if !deaf || err != nil {
			return n, err
		}
	}
}

// mute lets clients hear nothing more of a worker.
func (s *site) mute(w *workertest.Worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deaf[w.Member.Self().Addr] = true
}

func newSite(t *testing.T) *site {
	return &site{Cluster: workertest.New(t, 16), t: t, at: make(map[string]*pipeListener), conn: make(map[string][]net.Conn), cut: make(map[string]bool), deaf: make(map[string]bool)}
}

// start starts a worker and waits until it serves.
func (s *site) start(change ...func(*worker.Config)) *workertest.Worker {
	s.t.Helper()
	w := s.Start(change...)
	l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	s.mu.Lock()
	s.at[w.Member.Self().Addr] = l
	s.mu.Unlock()
	server := w.NewServer(w.Handler(nil))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(l)
	}()
	s.t.Cleanup(func() {
		server.Close()
		<-ended
	})
	for w.Serving() == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	return w
}

// client returns a client that owns nothing.
func (s *site) client(change ...func(*router.ClientConfig)) *router.Client {
	s.t.Helper()
	s.mu.Lock()
	name := fmt.Sprint("client", len(s.conn))
	s.mu.Unlock()
	member := kit.Must(s.Hub.Join(ring.Member{Name: name, Role: ring.RoleRouter, State: ring.StateActive}))
	cfg := router.ClientConfig{Members: member, Dial: s.dial}
	for _, f := range change {
		f(&cfg)
	}
	c := kit.Must(router.NewClient(cfg))
	s.t.Cleanup(func() { c.Close() })
	return c
}

func (s *site) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	s.mu.Lock()
	l, cut := s.at[addr], s.cut[addr]
	s.mu.Unlock()
	if l == nil || cut {
		return nil, fmt.Errorf("nothing at %s", addr)
	}
	near, far := net.Pipe()
	select {
	case l.conns <- far:
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.mu.Lock()
	s.conn[addr] = append(s.conn[addr], near)
	s.mu.Unlock()
	return &wire{near, s, addr}, nil
}

// sever ends all connections to a worker, and allows new ones or not.
func (s *site) sever(w *workertest.Worker, cut bool) {
	addr := w.Member.Self().Addr
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut[addr] = cut
	for _, c := range s.conn[addr] {
		c.Close()
	}
	s.conn[addr] = nil
}

// kill ends a worker as the death of its process does.
func (s *site) kill(w *workertest.Worker) {
	s.sever(w, true)
	w.Close()
	_ = w.Member.Vanish()
}

// keyOf returns a key that a worker owns.
func (s *site) keyOf(w *workertest.Worker, prefix string) string {
	for i := 0; ; i++ {
		key := fmt.Sprintf("%s%d", prefix, i)
		if err := w.Do(s.t.Context(), key, func(worker.Execution) error { return nil }); err == nil {
			return key
		}
	}
}

// isFree reports whether a key of w is held by nobody.
func isFree(t *testing.T, w *workertest.Worker, key string) bool {
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	return w.Do(ctx, key, func(worker.Execution) error { return nil }) == nil
}

type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		w := s.start()
		c := s.client()
		var last int64
		for range 3 {
			ran := false
			err := c.Hold(t.Context(), "k", func(ctx context.Context, token int64) error {
				ran = true
				if token <= last {
					t.Errorf("token %d follows %d", token, last)
				}
				last = token
				if isFree(t, w, "k") {
					t.Error("the key is free at its owner")
				}
				time.Sleep(3 * ttl) // renewed
				if ctx.Err() != nil {
					t.Errorf("cancelled: %v", context.Cause(ctx))
				}
				if isFree(t, w, "k") {
					t.Error("the key is free at its owner after a while")
				}
				return nil
			})
			if err != nil || !ran {
				t.Fatalf("ran: %v, %v", ran, err)
			}
			synctest.Wait()
			if !isFree(t, w, "k") {
				t.Error("the key is held at its owner after Hold has returned")
			}
		}
		reason := errors.New("reason")
		if err := c.Hold(t.Context(), "k", func(context.Context, int64) error { return reason }); err != reason {
			t.Errorf("the function's error became %v", err)
		}
	})
}

func TestHoldErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		w := s.start(func(cfg *worker.Config) { cfg.QueuePerKey = 1 })
		c := s.client(func(cfg *router.ClientConfig) { cfg.Hold = time.Second })
		never := func(context.Context, int64) error {
			t.Error("the function runs")
			return nil
		}
		if err := c.Hold(t.Context(), "", never); !errors.Is(err, gateway.ErrNoKey) {
			t.Errorf("no key: %v", err)
		}
		gone, cancel := context.WithCancelCause(t.Context())
		reason := errors.New("reason")
		cancel(reason)
		if err := c.Hold(gone, "k", never); !errors.Is(err, reason) {
			t.Errorf("a context that is done: %v", err)
		}
		_ = c.Hold(t.Context(), "k", func(ctx context.Context, token int64) error {
			if err := c.TryHold(t.Context(), "k", never); !errors.Is(err, gateway.ErrHeld) {
				t.Errorf("a key that is held: %v", err)
			}
			nested := false
			err := c.Hold(ctx, "k", func(_ context.Context, again int64) error {
				nested = again == token
				return nil
			})
			if err != nil || !nested {
				t.Errorf("nested: %v, with the same token: %v", err, nested)
			}
			go func() { _ = c.Hold(t.Context(), "k", func(context.Context, int64) error { return nil }) }()
			synctest.Wait()
			if err := c.Hold(t.Context(), "k", never); !errors.Is(err, gateway.ErrBusy) {
				t.Errorf("a full queue: %v", err)
			}
			return nil
		})
		synctest.Wait()
		s.kill(w)
		if err := c.Hold(t.Context(), "k", never); !errors.Is(err, gateway.ErrUnavailable) {
			t.Errorf("no worker: %v", err)
		}
		c.Close()
		if err := c.Hold(t.Context(), "k", never); !errors.Is(err, net.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	})
}

// What works with a key is cancelled before others may have it, whatever ends the
// hold.
func TestTrapHoldEndsBeforeItsLease(t *testing.T) {
	for _, tt := range []struct {
		name     string
		end      func(s *site, w *workertest.Worker, store *cutStore)
		min, max time.Duration // until fn's context ends
	}{
		{"the owner dies", func(s *site, w *workertest.Worker, _ *cutStore) { s.kill(w) }, 5 * time.Second, 8200 * time.Millisecond},
		{"the owner cannot be reached", func(s *site, w *workertest.Worker, _ *cutStore) { s.sever(w, true) }, 5 * time.Second, 8200 * time.Millisecond},
		{"the owner cannot reach the store", func(_ *site, _ *workertest.Worker, store *cutStore) { store.cut.Store(true) }, 5 * time.Second, 8200 * time.Millisecond},
		{"the owner cannot reach the store, and dies later", func(s *site, w *workertest.Worker, store *cutStore) {
			store.cut.Store(true)
			time.Sleep(5 * time.Second)
			s.kill(w)
		}, 5 * time.Second, 8200 * time.Millisecond},
		{"the owner has lost its session", func(s *site, w *workertest.Worker, _ *cutStore) {
			_ = s.Store.Release(s.t.Context(), w.Incarnation())
		}, 0, 2500 * time.Millisecond},
		{"the client is closed", nil, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t)
				store := &cutStore{Store: s.Store}
				w := s.start(func(cfg *worker.Config) { cfg.Store = store })
				c := s.client()
				err := c.Hold(t.Context(), "k", func(ctx context.Context, _ int64) error {
					time.Sleep(7 * time.Second)
					began := time.Now()
					if tt.end == nil {
						go c.Close()
					} else {
						tt.end(s, w, store)
					}
					<-ctx.Done()
					if d := time.Since(began); d < tt.min || d > tt.max {
						t.Errorf("cancelled after %v, want %v to %v", d, tt.min, tt.max)
					}
					return context.Cause(ctx)
				})
				if !errors.Is(err, gateway.ErrOwnershipLost) {
					t.Errorf("cancelled with %v", err)
				}
				t.Log(err)
			})
		})
	}
}

// cutStore is a store that can be cut off from its worker.
type cutStore struct {
	worker.Store
	cut atomic.Bool
}

func (s *cutStore) Renew(ctx context.Context, generation, incarnation string, ttl time.Duration) error {
	if s.cut.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.Store.Renew(ctx, generation, incarnation, ttl)
}

// A key is free again when its holder has gone without releasing it: within a TTL
// of when it was last heard of, and not before.
func TestTrapHoldOfTheDeadEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		w := s.start()
		c := s.client()
		held := make(chan struct{})
		var ended atomic.Bool
		go func() {
			_ = c.Hold(t.Context(), "k", func(ctx context.Context, _ int64) error {
				close(held)
				<-ctx.Done()
				ended.Store(true)
				return nil
			})
		}()
		<-held
		time.Sleep(ttl)
		s.sever(w, true) // as if the holder had died: it is not heard of any more
		cut := time.Now()
		err := w.Do(t.Context(), "k", func(worker.Execution) error { return nil })
		if d := time.Since(cut); err != nil || !ended.Load() || d < ttl*7/10 || d > ttl {
			t.Errorf("free after %v (%v), with the holder at work: %v; want 0.8 to 1 TTL after its last renewal", d, err, !ended.Load())
		}
	})
}

// A connection that is lost costs a renewal, not the hold.
func TestHoldOutlivesItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		w := s.start()
		c := s.client()
		err := c.Hold(t.Context(), "k", func(ctx context.Context, _ int64) error {
			for range 20 {
				s.sever(w, false)
				time.Sleep(time.Second)
			}
			return ctx.Err()
		})
		if err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if !isFree(t, w, "k") {
			t.Error("the key is not released")
		}
	})
}

// Who gives up while he waits holds nothing, and does not keep others waiting.
func TestTrapGivenUpWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		w := s.start()
		c := s.client()
		for _, how := range []string{"cancelled", "cancelled when it is granted", "connection lost"} {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			_ = w.Do(t.Context(), "k", func(worker.Execution) error {
				go func() {
					done <- c.Hold(ctx, "k", func(context.Context, int64) error {
						if how != "connection lost" {
							t.Error(how + ": the function runs")
						}
						return nil
					})
				}()
				synctest.Wait()
				switch how {
				case "cancelled":
					cancel()
					synctest.Wait()
				case "cancelled when it is granted":
					go cancel()
				default:
					s.sever(w, false)
				}
				return nil
			})
			if err := <-done; (err == nil) != (how == "connection lost") {
				t.Errorf("%s: %v", how, err)
			}
			cancel()
			synctest.Wait()
			if !isFree(t, w, "k") {
				t.Errorf("%s: the key is held", how)
			}
		}
	})
}

// A key that was waited for longer than a lease is held for as long as any other.
func TestHoldAfterALongWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		w := s.start()
		c := s.client()
		done := make(chan error, 1)
		_ = w.Do(t.Context(), "k", func(worker.Execution) error {
			go func() {
				done <- c.Hold(t.Context(), "k", func(ctx context.Context, _ int64) error {
					time.Sleep(5 * time.Second)
					return ctx.Err()
				})
			}()
			time.Sleep(25 * time.Second)
			return nil
		})
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A key that is held moves to another worker with its partition only when it is
// released: nobody else gets it meanwhile.
func TestHoldWhileItsKeyMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		a := s.start()
		c := s.client()
		var wg sync.WaitGroup
		var holding [64]atomic.Int32
		for i := range holding {
			key := fmt.Sprint("key", i)
			for range 2 {
				wg.Go(func() {
					err := c.Hold(t.Context(), key, func(ctx context.Context, _ int64) error {
						if holding[i].Add(1) > 1 {
							t.Errorf("%s is held twice", key)
						}
						time.Sleep(2 * ttl)
						holding[i].Add(-1)
						return ctx.Err()
					})
					if err != nil {
						t.Errorf("%s: %v", key, err)
					}
				})
			}
		}
		time.Sleep(time.Second)
		b := s.start()
		time.Sleep(ttl / 2)
		drained := make(chan error, 1)
		go func() { drained <- a.Drain(t.Context()) }()
		time.Sleep(ttl)
		select {
		case err := <-drained:
			t.Errorf("the worker has drained while keys of it are held: %v", err)
		default:
		}
		wg.Wait()
		if err := <-drained; err != nil {
			t.Error(err)
		}
		if b.Serving() != 16 {
			t.Errorf("%d partitions at the other worker", b.Serving())
		}
	})
}

// A holder that looks whether it may go on sees its deadline itself, not what a timer
// has made of it: a process that was stopped goes on before its timers run.
func TestTrapHoldComparesItsDeadline(t *testing.T) {
	ends := func(poll bool) (after time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t)
			w := s.start()
			time.Sleep(70 * time.Millisecond)
			_ = s.client().Hold(t.Context(), "k", func(ctx context.Context, _ int64) error {
				s.sever(w, true)
				began := time.Now()
				if !poll {
					<-ctx.Done()
				}
				for ctx.Err() == nil {
					time.Sleep(time.Millisecond)
				}
				after = time.Since(began)
				return nil
			})
		})
		return after
	}
	compared, timed := ends(true), ends(false)
	if compared >= timed || timed-compared > ttl/50 {
		t.Errorf("the context has ended after %v for who asked, and %v for who waited", compared, timed)
	}
}

func TestDoAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		a, b := s.start(), s.start()
		time.Sleep(5 * time.Second)
		ka, kb := s.keyOf(a, "b"), s.keyOf(b, "a")
		c := s.client()
		ran := false
		err := c.DoAll(t.Context(), []string{ka, kb, ka}, func(xs router.Executions) error {
			ran = true
			if keys := xs.Keys(); len(keys) != 2 || keys[0] != kb || keys[1] != ka {
				t.Errorf("keys %q", keys)
			}
			if xs.Token(ka) == 0 || xs.Token(kb) == 0 || xs.Token("other") != 0 {
				t.Errorf("tokens %d %d %d", xs.Token(ka), xs.Token(kb), xs.Token("other"))
			}
			if isFree(t, a, ka) || isFree(t, b, kb) {
				t.Error("a key is free")
			}
			return c.DoAll(xs.Context(), []string{kb, ka}, func(again router.Executions) error {
				if again.Token(ka) != xs.Token(ka) {
					t.Error("nested: another token")
				}
				return nil
			})
		})
		if err != nil || !ran {
			t.Fatal(err)
		}
		synctest.Wait()
		if !isFree(t, a, ka) || !isFree(t, b, kb) {
			t.Error("a key is held")
		}
		never := func(router.Executions) error {
			t.Error("the function runs")
			return nil
		}
		if err := c.DoAll(t.Context(), nil, never); !errors.Is(err, gateway.ErrNoKey) {
			t.Errorf("no keys: %v", err)
		}
		if err := c.DoAll(t.Context(), []string{"a", "\x00"}, never); !errors.Is(err, gateway.ErrBadKey) {
			t.Errorf("a bad key: %v", err)
		}
		var many []string
		for i := range 65 {
			many = append(many, fmt.Sprint(i))
		}
		if err := c.DoAll(t.Context(), many, never); err == nil {
			t.Error("65 keys are held")
		}
		// The loss of one key ends the whole.
		err = c.DoAll(t.Context(), []string{ka, kb}, func(xs router.Executions) error {
			s.kill(b) // kb is the outer one
			<-xs.Context().Done()
			return context.Cause(xs.Context())
		})
		if !errors.Is(err, gateway.ErrOwnershipLost) {
			t.Errorf("the loss of a key: %v", err)
		}
	})
}

// Money that is moved between accounts of several workers is neither made nor lost,
// and nobody waits in a circle.
func TestDoAllTransfers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const accounts, start, transfers, callers = 6, 1000, 60, 8
		s := newSite(t)
		s.start()
		var balance [accounts]int
		for i := range balance {
			balance[i] = start
		}
		clients := []*router.Client{s.client(), s.client()}
		var wg sync.WaitGroup
		for i := range callers {
			c := clients[i%len(clients)]
			wg.Go(func() {
				for n := range transfers {
					from, to := (i+n)%accounts, (i*n+1)%accounts
					err := c.DoAll(t.Context(), []string{fmt.Sprint("account", from), fmt.Sprint("account", to)}, func(xs router.Executions) error {
						if xs.Context().Err() != nil {
							return xs.Context().Err()
						}
						a := balance[from]
						time.Sleep(time.Duration(i) * time.Millisecond)
						balance[from] = a - 1
						b := balance[to]
						time.Sleep(time.Millisecond)
						balance[to] = b + 1
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		s.start()
		s.start()
		wg.Wait()
		sum := 0
		for _, b := range balance {
			sum += b
		}
		if sum != accounts*start {
			t.Errorf("%d in all, want %d: %v", sum, accounts*start, balance)
		}
	})
}

// The lease of a hold runs from before the call that was confirmed, however long the
// answer took.
func TestTrapLeaseRunsFromBeforeTheCall(t *testing.T) {
	for _, method := range []string{"acquire", "renew"} {
		synctest.Test(t, func(t *testing.T) {
			const slow = 1500 * time.Millisecond
			s := newSite(t)
			w := s.start()
			s.delay = func(p []byte) time.Duration {
				if bytes.Contains(p, []byte(":"+method)) {
					return slow
				}
				return 0
			}
			c := s.client()
			began := time.Now()
			_ = c.Hold(t.Context(), "k", func(ctx context.Context, _ int64) error {
				if method == "renew" {
					time.Sleep(ttl/5 + slow + ttl/20) // the first renewal has been confirmed
					began = began.Add(ttl/5 + ttl/50) // it was sent by then
				}
				s.sever(w, true)
				<-ctx.Done()
				if d := time.Since(began); d > ttl*8/10+ttl/50 {
					t.Errorf("%s: cancelled %v after the last call was sent", method, d)
				}
				return nil
			})
		})
	}
}

// A grant whose answer is lost is released when its caller gives up.
func TestTrapLostGrantIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		w := s.start()
		c := s.client()
		if err := c.Hold(t.Context(), "other", func(context.Context, int64) error { return nil }); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		s.mute(w) // what it answers is not heard
		done := make(chan error, 1)
		go func() { done <- c.Hold(ctx, "k", func(context.Context, int64) error { return nil }) }()
		synctest.Wait()
		if isFree(t, w, "k") {
			t.Fatal("the key was not granted")
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		synctest.Wait()
		if !isFree(t, w, "k") {
			t.Error("the key is held for nobody")
		}
	})
}
