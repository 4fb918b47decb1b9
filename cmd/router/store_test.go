package main

import (
	"bufio"
	"bytes"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/fallback"
	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/internal/ctl"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/gossip"
)

// unsureInterval is how often a router asks for a store that it does not know.
const unsureInterval = time.Second

// older is the identity of a store that was begun before any of a test's.
const older ring.StoreID = 7

// startRedis starts a Redis that holds nothing.
func startRedis(t *testing.T) (url string) {
	t.Helper()
	e, err := store.StartEmbedded("127.0.0.1:0", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e.URL()
}

// openRedis opens the store in a Redis as a worker does that knows its
// identity; 0 for one that does not.
func openRedis(t *testing.T, url string, known ring.StoreID) *store.Store {
	t.Helper()
	s, err := store.New(url, store.Config{Settings: ring.Settings{Store: known}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// begin makes the store in a Redis one with an identity.
func begin(t *testing.T, url string, known ring.StoreID) ring.StoreID {
	t.Helper()
	s := openRedis(t, url, known)
	if _, err := s.Generation(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	return s.Settings().Store
}

// joinStore starts a member that is an active worker of a store.
func joinStore(t *testing.T, r *startRouter, name string, id ring.StoreID) *gossip.Cluster {
	t.Helper()
	c, err := gossip.Start(t.Context(), gossip.Config{
		Settings: ring.Settings{Store: id},
		Self:     ring.Member{Name: name, Incarnation: name + "-life", Role: ring.RoleWorker, State: ring.StateActive, Addr: "127.0.0.1:1"},
		Seeds:    []string{r.gossip},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// awaitReadiness waits until /readyz says so, with all these words.
func awaitReadiness(t *testing.T, r *startRouter, status int, words ...string) {
	t.Helper()
	eventually(t, func() (bool, string) {
		got, body := fetch(t, r.admin+"/readyz", "")
		lacks := func(word string) bool { return !strings.Contains(body, word) }
		return got == status && !slices.ContainsFunc(words, lacks), body
	})
}

// awaitAnnounced waits until a member sees that the router uses a store.
func awaitAnnounced(t *testing.T, c *gossip.Cluster, id ring.StoreID) {
	t.Helper()
	eventually(t, func() (bool, string) {
		for _, m := range c.View().Members {
			if m.Role == ring.RoleRouter {
				return m.StoreID == id, m.StoreID.String()
			}
		}
		return false, "no router"
	})
}

// eventually fails the test with what there is instead if ok stays false.
func eventually(t *testing.T, ok func() (ok bool, instead string)) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		done, instead := ok()
		if done {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("still: %s", instead)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// A router that uses another store than the workers is not ready, and says
// which stores there are and what to do.
func TestAnotherStoreIsNoticed(t *testing.T) {
	t.Run("of its own", func(t *testing.T) {
		r := start(t)
		joinStore(t, r, "w", older)
		awaitReadiness(t, r, http.StatusServiceUnavailable, "empty", `"w"`, older.String(), "--redis")
	})
	t.Run("empty", func(t *testing.T) {
		r := start(t, "--redis", startRedis(t))
		joinStore(t, r, "w", older)
		awaitReadiness(t, r, http.StatusServiceUnavailable, "empty", `"w"`, older.String(), "--redis")
		if log := r.stderr.String(); !strings.Contains(log, "level=ERROR") || !strings.Contains(log, "the store is empty") {
			t.Errorf("the log does not say so: %s", log)
		}
	})
	t.Run("of another cluster", func(t *testing.T) {
		url := startRedis(t)
		id := begin(t, url, 0)
		r := start(t, "--redis", url)
		joinStore(t, r, "w", older)
		awaitReadiness(t, r, http.StatusServiceUnavailable, id.String(), `"w"`, older.String(), "--redis")
	})
}

// A router goes by its own store: workers of another one, be it older, are
// none of its, and leave it ready.
func TestRouterFollowsItsStore(t *testing.T) {
	url := startRedis(t)
	id := begin(t, url, 0)
	r := start(t, "--redis", url)
	joinStore(t, r, "wrong", older)
	awaitReadiness(t, r, http.StatusServiceUnavailable, older.String())
	right := joinStore(t, r, "right", id)
	awaitReadiness(t, r, http.StatusOK)
	awaitAnnounced(t, right, id)
	if status, body := fetch(t, r.admin+"/explain?key=x", ""); status != 200 || !strings.Contains(body, `"right"`) {
		t.Errorf("%d %s", status, body)
	}
}

// A router that is started while the store has lost its data does not begin
// the store anew: that is for workers, who know which one it was.
func TestEmptiedStoreIsLeftToWorkers(t *testing.T) {
	url := startRedis(t)
	r := start(t, "--redis", url)
	w := joinStore(t, r, "w", older)
	awaitReadiness(t, r, http.StatusServiceUnavailable, "empty")
	if _, err := openRedis(t, url, 0).Generation(t.Context(), false); !errors.Is(err, ring.ErrSettings) {
		t.Errorf("the router has begun the store: %v", err)
	}
	if id := begin(t, url, older); id != older {
		t.Errorf("the store is now %v, and was %v", id, older)
	}
	awaitReadiness(t, r, http.StatusOK)
	awaitAnnounced(t, w, older)
}

// A worker that says nothing of its store counts as of no other one, and the
// router asks nothing of its store, which would begin it.
func TestUnknownStoreIsNoOther(t *testing.T) {
	url := startRedis(t)
	r := start(t, "--redis", url)
	joinStore(t, r, "w", 0)
	awaitReadiness(t, r, http.StatusOK)
	for over := time.After(3 * unsureInterval); ; {
		if status, body := fetch(t, r.admin+"/readyz", ""); status != http.StatusOK {
			t.Fatalf("%d %s", status, body)
		}
		select {
		case <-over:
			if _, err := openRedis(t, url, 0).Generation(t.Context(), false); !errors.Is(err, ring.ErrSettings) {
				t.Errorf("the router has begun the store: %v", err)
			}
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// A router goes along when its store becomes another one.
func TestStoreBecomesAnother(t *testing.T) {
	url := startRedis(t)
	r := start(t, "--redis", url)
	id := begin(t, url, 0)
	w := joinStore(t, r, "w", id)
	awaitAnnounced(t, w, id)
	if err := w.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitReadiness(t, r, http.StatusServiceUnavailable, "no worker")
	client, err := fallback.NewClient(url)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	begin(t, url, older)
	awaitAnnounced(t, joinStore(t, r, "w", older), older)
	awaitReadiness(t, r, http.StatusOK)
}

// A router joins workers that gossip has lost sight of by the store's sessions,
// but only beside workers of that store: otherwise one with a wrong --redis
// would bring two clusters together, and the younger one's workers would stop.
func TestWrongStoreJoinsNoClusters(t *testing.T) {
	lost, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lost.Close()
	called := make(chan struct{}, 1)
	go func() {
		for {
			c, err := lost.Accept()
			if err != nil {
				return
			}
			c.Close()
			select {
			case called <- struct{}{}:
			default:
			}
		}
	}()
	url := startRedis(t)
	id := begin(t, url, 0)
	s := openRedis(t, url, id)
	generation, err := s.Generation(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Register(t.Context(), generation, records.Session{Incarnation: "lost", Name: "lost", Addr: "127.0.0.1:1", Gossip: lost.Addr().String()}, time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	r := start(t, "--redis", url)
	joinStore(t, r, "wrong", older)
	awaitReadiness(t, r, http.StatusServiceUnavailable, id.String(), older.String())
	select {
	case <-called:
		t.Error("workers of another cluster are joined")
	case <-time.After(3 * unsureInterval):
	}
	joinStore(t, r, "right", id)
	select {
	case <-called:
	case <-time.After(time.Minute):
		t.Error("a worker that is out of sight is not joined")
	}
}

// A router whose Redis cannot be used says so, with the address and the cause: in its log, once and within 2 s, when asked
// whether it is ready, and as the headline of its page.
func TestAnUnusableRedisIsNamed(t *testing.T) {
	addr := kit.FreeAddr(t)
	r := start(t, "--redis", "redis://:s3cret@"+addr)
	awaitReadiness(t, r, http.StatusServiceUnavailable, "no worker is on the ring", addr, "connection refused")
	res := kit.Must(http.Get(r.admin + "/events"))
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "data: ") {
	}
	_, says, _ := strings.Cut(lines.Text(), `"says":[`)
	if !strings.HasPrefix(says, `{"level":"bad","about":"store`) || !strings.Contains(says, `"text":"This router cannot use the store: the Redis at `+addr+` cannot be used: dial: connect: connection refused`) {
		t.Errorf("the headline is %s", says)
	}
	var out bytes.Buffer
	if err := ctl.Run(t.Context(), "router", strings.TrimPrefix(r.admin, "http://"), []string{"workers"}, &out); err != nil || !strings.Contains(out.String(), addr) {
		t.Errorf("ctl workers: %v: %s", err, &out)
	}
	log := r.stderr.String()
	if strings.Count(log, "connection refused") != 1 || !strings.Contains(log, addr) || strings.Contains(log, "s3cret") {
		t.Errorf("the log has not one line of it: %s", log)
	}
}
