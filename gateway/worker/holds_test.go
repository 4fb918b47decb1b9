package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/internal/placement"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

// caller makes calls to a worker as another member does, in a bubble.
type caller struct {
	t *testing.T
	link.Client
	ring  ring.Config
	epoch int64               // that it knows of all partitions
	key   map[holds.ID]string // asked for
}

// newCaller connects to a server of w whose app must get nothing.
func newCaller(t *testing.T, w *site.Worker) *caller {
	kit.EmptyPools(t)
	l := site.NewListener()
	w.Serve(t, l, w.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the app got a request") })))
	c := &caller{t: t, ring: w.Ring, key: make(map[holds.ID]string)}
	c.Config = hop.LinkConfig(w.Member, hop.MaxHeaderBytes, nil)
	c.Dial = l.Dial
	t.Cleanup(func() { c.Close() })
	return c
}

// call makes a call and returns the answer.
func (c *caller) call(ctx context.Context, method, key string, body []byte, baggage ...string) (status int, answer []byte, err error) {
	req := &link.Request{Method: method, Call: true, Target: "/", Key: key, Epoch: c.epoch, Body: bytes.NewReader(body), ContentLength: int64(len(body))}
	for _, value := range baggage {
		req.Fields = link.AppendField(req.Fields, "Baggage", value)
	}
	res, err := c.Do(ctx, req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	answer, err = io.ReadAll(res.Body)
	return res.Status, answer, err
}

// acquire asks for a key, and returns the grant or fails the test.
func (c *caller) acquire(key string, id holds.ID) holds.Grant {
	c.t.Helper()
	return c.acquireAs(key, holds.Request{ID: id})
}

func (c *caller) acquireAs(key string, req holds.Request) holds.Grant {
	c.t.Helper()
	c.key[req.ID] = key
	status, body, err := c.call(c.t.Context(), holds.Acquire, key, req.Append(nil))
	if err != nil || status != http.StatusOK {
		c.t.Fatalf("%d %s %v", status, body, err)
	}
	grant, err := holds.ParseGrant(body)
	if err != nil {
		c.t.Fatal(err)
	}
	return grant
}

func (c *caller) renew(ids ...holds.ID) holds.Answers {
	c.t.Helper()
	_, body, err := c.call(c.t.Context(), holds.Renew, "", c.refs(ids))
	if err != nil {
		c.t.Fatal(err)
	}
	r, err := holds.ParseAnswers(body, len(ids))
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

func (c *caller) release(ids ...holds.ID) []holder.Answer {
	c.t.Helper()
	status, body, err := c.call(c.t.Context(), holds.Release, "", c.refs(ids))
	if err != nil || status != http.StatusOK {
		c.t.Fatal(status, string(body), err)
	}
	answers, err := holds.ParseAnswers(body, len(ids))
	if err != nil {
		c.t.Fatal(err)
	}
	return answers.States
}

// refs returns the body of a call about holds of keys that were asked for.
func (c *caller) refs(ids []holds.ID) []byte {
	var refs []holds.Ref
	for _, id := range ids {
		ref := holds.Ref{ID: id}
		if key, ok := c.key[id]; ok {
			ref.Partition = c.ring.Partition(key)
		}
		refs = append(refs, ref)
	}
	return holds.AppendRefs(nil, refs)
}

// sameAs returns another key of the partition of key.
func sameAs(c ring.Config, key string) string {
	for i := 0; ; i++ {
		if other := fmt.Sprint("other", i); c.Partition(other) == c.Partition(key) {
			return other
		}
	}
}

// free reports whether nobody holds a key.
func free(t *testing.T, w *site.Worker, key string) bool {
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	return w.Do(ctx, key, ok) == nil
}

func TestCallsMayBeRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).Start()
		w.AwaitServing(t, 16)
		c := newCaller(t, w)
		id, other := holds.NewID(), holds.NewID()
		first := c.acquire("k", id)
		if again := c.acquire("k", id); again.Token != first.Token {
			t.Errorf("token %d, and %d when asked again", first.Token, again.Token)
		}
		if status, body, _ := c.call(t.Context(), holds.Acquire, sameAs(c.ring, "k"), holds.Request{ID: id}.Append(nil)); status != http.StatusUnprocessableEntity {
			t.Errorf("another key for the same hold: %d %s", status, body)
		}
		if r := c.renew(id, other); !slices.Equal(r.States, []holder.Answer{holder.Held, holder.Gone}) {
			t.Errorf("renewed: %v", r.States)
		}
		c.release(id, id, other)
		c.release(id)
		if r := c.renew(id); r.States[0] == holder.Held {
			t.Error("what was released is renewed")
		}
		if !free(t, w, "k") {
			t.Error("the key is not free")
		}
		// A call that is repeated while the first one waits takes its place.
		id = holds.NewID()
		c.key[id] = "k"
		done := make(chan int, 2)
		_ = w.Do(t.Context(), "k", func(gateway.Execution) error {
			for range 2 {
				go func() {
					status, _, _ := c.call(t.Context(), holds.Acquire, "k", holds.Request{ID: id}.Append(nil))
					done <- status
				}()
				synctest.Wait()
			}
			if n := w.Queued("k"); n != 1 {
				t.Errorf("%d wait", n)
			}
			return nil
		})
		if a, b := <-done, <-done; max(a, b) == http.StatusOK && min(a, b) == http.StatusOK {
			t.Error("both calls were granted the key")
		}
		if c.renew(id).States[0] != holder.Held {
			t.Error("the key is not held")
		}
		c.release(id)
		// A release while the key is waited for ends the wait.
		id = holds.NewID()
		c.key[id] = "k"
		_ = w.Do(t.Context(), "k", func(gateway.Execution) error {
			go func() {
				status, _, _ := c.call(t.Context(), holds.Acquire, "k", holds.Request{ID: id}.Append(nil))
				done <- status
			}()
			synctest.Wait()
			c.release(id)
			synctest.Wait()
			if n := w.Queued("k"); n != 0 {
				t.Errorf("%d wait after the release", n)
			}
			return nil
		})
		if status := <-done; status == http.StatusOK || !free(t, w, "k") {
			t.Errorf("%d after the release, and the key is free: %v", status, free(t, w, "k"))
		}
	})
}

func TestCallsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).Start(func(cfg *worker.Config) { cfg.MaxHolds = 2 })
		w.AwaitServing(t, 16)
		c := newCaller(t, w)
		ask := func() []byte { return holds.Request{ID: holds.NewID()}.Append(nil) }
		held := c.acquire("k", holds.NewID())
		if held.Token == 0 || held.Cancel <= 0 || held.Cancel > 8*time.Second || held.Surrender <= held.Cancel {
			t.Errorf("granted %+v", held)
		}
		var chain string
		h := w.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { chain = r.Header.Get("Baggage") }))
		r, _ := http.NewRequest("GET", "/", nil)
		r.Header.Set("Keyway-Key", "nested")
		h.ServeHTTP(discard{}, r)
		for _, tt := range []struct {
			name, method, key string
			body              []byte
			baggage           string
			status            int
		}{
			{"unknown", ":other", "k", nil, "", http.StatusNotImplemented},
			{"no id", holds.Acquire, "k", nil, "", http.StatusBadRequest},
			{"too long", holds.Acquire, "k", bytes.Repeat([]byte{1}, 17+2+holds.MaxLabel+1), "", http.StatusBadRequest},
			{"no key", holds.Acquire, "", ask(), "", http.StatusBadRequest},
			{"bad key", holds.Acquire, "a\x00", ask(), "", http.StatusBadRequest},
			{"half an id", holds.Renew, "", make([]byte, 24), "", http.StatusBadRequest},
			{"no such partition", holds.Renew, "", holds.AppendRefs(nil, []holds.Ref{{Partition: 16}}), "", http.StatusBadRequest},
			{"another partition than the key's", holds.Renew, "k", holds.AppendRefs(nil, []holds.Ref{{Partition: c.ring.Partition("k") ^ 1}}), "", http.StatusBadRequest},
			{"many ids", holds.Release, "", make([]byte, 17*(holds.MaxRefs+1)), "", http.StatusBadRequest},
			{"nothing to abandon", holds.Abandon, "k", ask(), "", http.StatusBadRequest},
			{"held", holds.Acquire, "k", holds.Request{ID: holds.NewID(), Try: true}.Append(nil), "", http.StatusConflict},
			{"nested", holds.Acquire, "nested", ask(), chain, http.StatusLoopDetected},
		} {
			status, body, err := c.call(t.Context(), tt.method, tt.key, tt.body, tt.baggage)
			if status != tt.status || err != nil {
				t.Errorf("%s: %d %s %v, want %d", tt.name, status, body, err, tt.status)
			}
		}
		c.acquire("k2", holds.NewID())
		_, _, err := c.call(t.Context(), holds.Acquire, "k3", ask())
		if refusal, _ := errors.AsType[*link.RefusedError](err); refusal == nil || refusal.Reason != link.Busy {
			t.Errorf("one more than Limits.MaxHolds: %v", err)
		}
		time.Sleep(11 * time.Second)
		for _, key := range []string{"k", "k2", "k3"} { // all have ended by themselves, and left no trace
			if !free(t, w, key) {
				t.Errorf("%s is held", key)
			}
		}
		c.acquire("k", holds.NewID())
		c.acquire("k2", holds.NewID())
	})
}

type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}

// What a worker promises ends with its own lease.
func TestTrapPromisesEndWithTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		store := &site.CutStore{Store: c.Store}
		w := c.StartOwner(func(cfg *worker.Config) { cfg.Store = store })
		caller := newCaller(t, w)
		id := holds.NewID()
		caller.acquire("k", id)
		time.Sleep(5 * time.Second)
		store.Set(true)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = w.Do(t.Context(), "other", func(x gateway.Execution) error {
				<-x.Context().Done()
				return nil
			})
		}()
		var last time.Duration
		for over := false; !over; {
			time.Sleep(500 * time.Millisecond)
			r := caller.renew(id)
			select {
			case <-ended:
				over = true
				if r.States[0] == holder.Held {
					t.Error("a hold of a lost partition is renewed")
				}
			default:
				if last != 0 && r.Cancel > last-490*time.Millisecond {
					t.Errorf("promised %v, and half a second before %v", r.Cancel, last)
				}
				if last = r.Cancel; r.States[0] != holder.Held {
					t.Error("the hold has ended before the lease")
				}
			}
		}
		if last > 600*time.Millisecond {
			t.Errorf("promised %v at most half a second before the end", last)
		}
		if free(t, w, "k") {
			t.Error("a key whose holder may still be at work is free")
		}
	})
}

// Holds are noted before the first one is promised: the incarnation of a process
// that dies must not be released early then.
func TestTrapHoldsAreNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var noted atomic.Int64
		var fails atomic.Bool
		id := func(string) error { return nil }
		for _, tt := range []struct {
			name    string
			onHold  func(string) error
			granted bool
		}{
			{"noted", func(string) error { noted.Add(1); return nil }, true},
			{"not noted", func(string) error { fails.Store(true); return errors.New("disk full") }, false},
			{"not to be noted", nil, false},
		} {
			w := site.New(t, 16).Start(func(cfg *worker.Config) { cfg.OnIncarnation, cfg.OnHold = id, tt.onHold })
			w.AwaitServing(t, 16)
			c := newCaller(t, w)
			for range 3 {
				status, body, err := c.call(t.Context(), holds.Acquire, "k", holds.Request{ID: holds.NewID()}.Append(nil))
				if granted := err == nil && status == http.StatusOK; granted != tt.granted {
					t.Errorf("%s: %d %s %v", tt.name, status, body, err)
				}
				if !tt.granted && !free(t, w, "k") {
					t.Errorf("%s: the key is held", tt.name)
				}
				if tt.granted {
					time.Sleep(11 * time.Second)
				}
			}
		}
		if noted.Load() != 1 || !fails.Load() {
			t.Errorf("noted %d times", noted.Load())
		}
	})
}

// The balancer's lock leaves its owner's death provable, since exclusion does not depend on it. The renewal of a lock
// that may come at any moment is noted.
func TestTheBalancersLockIsNotNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		balancer, other := holds.NewID(), holds.NewID()
		for _, later := range [][]holds.ID{{other}, {balancer, other}} {
			var noted atomic.Int64
			w := site.New(t, 16).Start(func(cfg *worker.Config) {
				cfg.OnIncarnation, cfg.OnHold = func(string) error { return nil }, func(string) error { noted.Add(1); return nil }
			})
			w.AwaitServing(t, 16)
			c := newCaller(t, w)
			c.acquire(placement.Lock, balancer)
			for range 3 {
				time.Sleep(5 * time.Second)
				if r := c.renew(balancer); r.States[0] != holder.Held {
					t.Fatalf("renewed: %+v", r)
				}
			}
			before := noted.Load()
			c.key[other] = "k"
			if c.renew(later...); before != 0 || noted.Load() != 1 {
				t.Errorf("noted %d times, and then %d", before, noted.Load())
			}
		}
	})
}

// A worker that is closed promises nothing, and lets go of who waits.
func TestCloseEndsHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).Start()
		w.AwaitServing(t, 16)
		c := newCaller(t, w)
		id := holds.NewID()
		c.acquire("k", id)
		done := make(chan error, 1)
		go func() {
			_, body, err := c.call(t.Context(), holds.Acquire, "k", holds.Request{ID: holds.NewID()}.Append(nil))
			if err == nil && !strings.Contains(string(body), "cancel") {
				err = errors.New(string(body))
			}
			done <- err
		}()
		synctest.Wait()
		w.Close()
		if r := c.renew(id); r.States[0] == holder.Held || r.Cancel > 0 {
			t.Errorf("renewed by a worker that is closed: %+v", r)
		}
		<-done
		if _, _, err := c.call(t.Context(), holds.Acquire, "k", holds.Request{ID: holds.NewID()}.Append(nil)); err == nil {
			t.Error("a worker that is closed grants a key")
		}
	})
}

// A call that ends at the very moment at which its key is granted holds nothing.
func TestTrapGivenUpWhenGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var giveUp atomic.Pointer[context.CancelFunc]
		w := site.New(t, 16).Start()
		w.OnConfirming(func() {
			if f := giveUp.Swap(nil); f != nil {
				(*f)()
				time.Sleep(time.Millisecond) // until the worker knows
			}
		})
		w.AwaitServing(t, 16)
		c := newCaller(t, w)
		c.acquire("other", holds.NewID()) // connected
		ctx, cancel := context.WithCancel(t.Context())
		giveUp.Store(&cancel)
		if _, _, err := c.call(ctx, holds.Acquire, "k", holds.Request{ID: holds.NewID()}.Append(nil)); err == nil {
			t.Fatal("the call has not ended")
		}
		time.Sleep(time.Second)
		if !free(t, w, "k") {
			t.Error("the key is held for nobody")
		}
	})
}
