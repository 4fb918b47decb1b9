package store

import (
	"crypto/rand"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/test/memstore"
	"github.com/keyway-go/keyway/internal/test/redistest"
	"github.com/keyway-go/keyway/internal/test/storetest"
	"github.com/keyway-go/keyway/ring"
)

// Sessions and quarantines that shall run out in a test last this long: long
// enough for a busy machine to do something before.
const shortTTL = time.Second

func everything(t *testing.T, open func(t *testing.T) storetest.Harness) {
	storetest.Conformance(t, open)
	storetest.Restarts(t, open)
	storetest.Handles(t, open)
}

func TestConformanceMemory(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T) storetest.Harness { // whose handles are all the same
		clock := newFakeClock()
		var memory *memstore.Store
		return storetest.Harness{
			TTL:    shortTTL,
			Elapse: clock.advance,
			Now:    clock.now,
			Open: func(t *testing.T, newCluster bool) storetest.Store {
				if memory == nil {
					memory = memstore.New(memstore.Config{Settings: ring.Settings{TTL: shortTTL}, NewCluster: newCluster, Clock: clock.now})
				} else if newCluster {
					memory.NewCluster = true
				}
				return memory
			},
			Restart: func() { memory.Restart() },
			Lose:    func() { memory.Lose() },
			LoseKey: func(key string) { memory.LoseKey(key) },
			Keys:    memstore.Keys(),
		}
	}
	storetest.Conformance(t, open)
	storetest.Restarts(t, open)
}

func TestConformanceEmbedded(t *testing.T) {
	t.Parallel()
	everything(t, func(t *testing.T) storetest.Harness {
		e := startEmbedded(t)
		h := harness(e.URL() + "?read_timeout=2m") // the scripts are slow in it, under the race detector on a busy machine
		h.LoseKey = func(key string) { e.server.Del(key) }
		// What a restart of an embedded server loses is everything.
		h.Lose = func() { e.server.FlushAll() }
		h.Restart = func() { e.server.Server().SetPreHook(answer(newRunID(), steadyClock())) }
		return h
	})
}

func TestConformanceRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes")
	everything(t, func(t *testing.T) storetest.Harness {
		h := harness(server.URL())
		h.Restart, h.Lose = server.Restart, server.RestartEmpty
		h.LoseKey = func(key string) { server.CLI("del", key) }
		return h
	})
}

// A flush leaves the run id alone.
func TestConformanceRedisFlushed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes")
	storetest.Restarts(t, func(t *testing.T) storetest.Harness {
		h := harness(server.URL())
		h.Restart, h.Lose = server.Restart, func() { server.CLI("flushall") }
		h.LoseKey = func(key string) { server.CLI("unlink", key) }
		return h
	})
}

func TestConformanceRedisCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	storetest.Conformance(t, func(t *testing.T) storetest.Harness { return harness(cluster.URL()) })
}

func TestConformanceRedisSentinel(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t)
	storetest.Conformance(t, func(t *testing.T) storetest.Harness { return harness(sentinel.URL()) })
}

func TestConformanceRedisTLS(t *testing.T) {
	t.Parallel()
	server, ca := redistest.StartTLS(t)
	storetest.Conformance(t, func(t *testing.T) storetest.Harness {
		return harness("rediss://" + server.Addr() + "?ca=" + ca)
	})
}

func TestConformanceRedisUnix(t *testing.T) {
	t.Parallel()
	// A socket's path may have about 100 bytes; t.TempDir's can be longer.
	dir, err := os.MkdirTemp("", "kw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "redis.sock")
	redistest.Start(t, "--unixsocket", socket, "--requirepass", "secret")
	storetest.Conformance(t, func(t *testing.T) storetest.Harness {
		return harness("unix://:secret@" + socket + "?db=2")
	})
}

// harness is a cluster of its own on a server.
func harness(url string) storetest.Harness {
	name := rand.Text()
	settings := ring.Settings{Cluster: name, TTL: shortTTL}
	return storetest.Harness{
		TTL:    shortTTL,
		Keys:   ownershipKeys(name),
		Elapse: func(d time.Duration) { <-time.After(d) },
		Now:    time.Now,
		Open: func(t *testing.T, newCluster bool) storetest.Store {
			return openStore(t, url, Config{Settings: settings, NewCluster: newCluster})
		},
		OpenWith: func(t *testing.T, change func(*ring.Settings)) storetest.Store {
			other := settings
			change(&other)
			return openStore(t, url, Config{Settings: other})
		},
	}
}

func openStore(t testing.TB, url string, o Config) *Store {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := New(url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func startEmbedded(t testing.TB) *Embedded {
	t.Helper()
	e, err := StartEmbedded("127.0.0.1:0", "secret")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

type fakeClock struct {
	mu sync.Mutex
	at time.Time
}

func newFakeClock() *fakeClock {
	return &fakeClock{at: time.Unix(1_800_000_000, 0)}
}

func (c *fakeClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}
