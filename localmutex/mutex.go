// Package localmutex is for programs that want only a keyed mutex within one process. Callers of
// the same key run one at a time, and callers of different keys do not affect each other.
//
// It is fair (first come, first served per key), obeys contexts, allocates nothing in steady state,
// bounds its queues, and forgets a key that is neither held nor waited for. It works inside
// testing/synctest bubbles.
package localmutex

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"github.com/keyway-go/keyway/internal/keytable"
)

// Errors of [Mutex.Lock], in addition to those of its context.
var (
	// ErrQueueFull means that as many callers wait as the Mutex allows.
	ErrQueueFull = keytable.ErrQueueFull
	// ErrWaited means that the caller waited for MaxWait.
	ErrWaited = keytable.ErrWaited
)

// shards is the number of tables of a Mutex: callers that name different keys
// seldom share one, and all of them together take about 32 KiB.
const shards = 256

// Mutex is a keyed mutex. Its zero value is ready to use, by any number of goroutines. After its
// first use it must not be copied, and its fields must not change.
type Mutex struct {
	PerKey  int           // callers that may wait for one key; 0 means 1024
	Total   int           // callers that may wait for all keys together; 0 means 65,536
	MaxWait time.Duration // how long a caller may wait; 0 means for as long as its context allows

	once   sync.Once
	seed   maphash.Seed
	queue  keytable.Queue
	tables []keytable.Table
}

// Lock waits until it holds key. Callers of one key get it in the order of arrival. If ctx is done,
// Lock returns ctx.Err() and holds nothing, even if the key is free. It returns [ErrQueueFull] at
// once if too many callers wait, and [ErrWaited] after MaxWait.
func (m *Mutex) Lock(ctx context.Context, key string) error {
	_, err := m.table(key).Lock(ctx, key)
	return err
}

// TryLock takes key if it is free, and reports whether it did.
func (m *Mutex) TryLock(key string) bool {
	_, err := m.table(key).TryLock(key)
	return err == nil
}

// Unlock gives key to its first waiter. It panics if key is not held. As with [sync.Mutex], any
// goroutine may unlock it.
func (m *Mutex) Unlock(key string) {
	if !m.table(key).UnlockAny(key) {
		panic(fmt.Sprintf("localmutex: Unlock of key %.64q, which is not held", key))
	}
}

// Queued returns how many callers wait for key.
func (m *Mutex) Queued(key string) int { return m.table(key).Queued(key) }

// Len returns how many keys are held.
func (m *Mutex) Len() int {
	m.once.Do(m.init)
	n := 0
	for i := range m.tables {
		n += m.tables[i].Len()
	}
	return n
}

func (m *Mutex) table(key string) *keytable.Table {
	m.once.Do(m.init)
	return &m.tables[maphash.String(m.seed, key)%shards]
}

func (m *Mutex) init() {
	m.queue.PerKey, m.queue.Total, m.queue.MaxWait = m.PerKey, m.Total, m.MaxWait
	m.seed = maphash.MakeSeed()
	m.tables = make([]keytable.Table, shards)
	for i := range m.tables {
		m.tables[i].Queue = &m.queue
	}
}
