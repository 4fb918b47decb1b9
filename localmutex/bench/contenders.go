package main

import (
	"context"
	"sync"

	"github.com/containerd/containerd/pkg/kmutex"
	"github.com/dapr/kit/concurrency/fifo"
	gammazero "github.com/gammazero/keymutex"
	"github.com/moby/locker"
	"github.com/puzpuzpuz/xsync/v4"
	k8s "k8s.io/utils/keymutex"

	"github.com/keyway-go/keyway/internal/keytable"
	"github.com/keyway-go/keyway/localmutex"
)

// pair is how to lock a key and how to unlock it, with what lock returned.
type pair struct {
	lock   func(ctx context.Context, key string) int64
	unlock func(key string, token int64)
}

// contender is a keyed mutex and what it can do.
type contender struct {
	name      string
	context   bool // waiting obeys a context
	fifo      bool // first come, first served
	cleans    bool // forgets idle keys, and does not let keys share a lock
	reference bool // the others are compared with it
	make      func() pair
}

const stripes = 1024 // for those that have a fixed number

func contenders() []contender {
	return []contender{
		{name: "sync.Mutex, no key", make: func() pair {
			var m sync.Mutex
			return plain(func(string) { m.Lock() }, func(string) { m.Unlock() })
		}},
		{name: "localmutex.Table", context: true, fifo: true, cleans: true, make: func() pair {
			var m keytable.Table
			return pair{
				lock: func(ctx context.Context, key string) int64 {
					token, err := m.Lock(ctx, key)
					must(err)
					return token
				},
				unlock: func(key string, token int64) { m.Unlock(key, token) },
			}
		}},
		{name: "localmutex.Mutex", context: true, fifo: true, cleans: true, reference: true, make: func() pair {
			var m localmutex.Mutex
			return withContext(m.Lock, m.Unlock)
		}},
		{name: "moby/locker", cleans: true, make: func() pair {
			m := locker.New()
			return plain(m.Lock, func(key string) { must(m.Unlock(key)) })
		}},
		{name: "k8s keymutex", make: func() pair {
			m := k8s.NewHashed(stripes)
			return plain(m.LockKey, func(key string) { must(m.UnlockKey(key)) })
		}},
		{name: "gammazero/keymutex", make: func() pair {
			m := gammazero.New(stripes)
			return plain(m.Lock, m.Unlock)
		}},
		{name: "containerd kmutex", context: true, fifo: true, cleans: true, make: func() pair {
			m := kmutex.New()
			return withContext(m.Lock, m.Unlock)
		}},
		{name: "dapr fifo.Map", fifo: true, cleans: true, make: func() pair {
			m := fifo.NewMap[string]()
			return plain(m.Lock, m.Unlock)
		}},
		{name: "xsync map + refcount", cleans: true, make: func() pair {
			m := counted{xsync.NewMap[string, *count]()}
			return plain(m.Lock, m.Unlock)
		}},
	}
}

func plain(lock, unlock func(key string)) pair {
	return pair{
		lock:   func(_ context.Context, key string) int64 { lock(key); return 0 },
		unlock: func(key string, _ int64) { unlock(key) },
	}
}

func withContext(lock func(context.Context, string) error, unlock func(string)) pair {
	return pair{
		lock:   func(ctx context.Context, key string) int64 { must(lock(ctx, key)); return 0 },
		unlock: func(key string, _ int64) { unlock(key) },
	}
}

// must ends the benchmark if a lock fails that cannot fail here.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// counted is what one writes by hand over a concurrent map: a mutex for each
// key, with a count of those who hold it or wait.
type counted struct {
	mutexes *xsync.Map[string, *count]
}

type count struct {
	sync.Mutex
	users int // changed only within Compute
}

func (c counted) Lock(key string) {
	m, _ := c.mutexes.Compute(key, func(m *count, loaded bool) (*count, xsync.ComputeOp) {
		if !loaded {
			m = new(count)
		}
		m.users++
		return m, xsync.UpdateOp
	})
	m.Lock()
}

func (c counted) Unlock(key string) {
	c.mutexes.Compute(key, func(m *count, _ bool) (*count, xsync.ComputeOp) {
		m.users--
		m.Unlock()
		if m.users == 0 {
			return nil, xsync.DeleteOp
		}
		return m, xsync.UpdateOp
	})
}
