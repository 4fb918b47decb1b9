package localmutex

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"
)

// shards is the number of tables of a Mutex: callers that name different keys
// seldom share one, and all of them together take about 32 KiB.
const shards = 256

// Mutex is a keyed mutex that stands alone. Its zero value is ready to use. It
// may be used by any number of goroutines, and must not be copied after its
// first use.
type Mutex struct {
	// Queue bounds the waiters. It must not be changed after the first use.
	// Nil means one of the mutex's own, with the defaults.
	Queue *Queue

	once   sync.Once
	seed   maphash.Seed
	tables []Table
}

// Lock waits until it holds key. Callers that wait for one key get it in the
// order in which they came. If ctx is done, Lock returns ctx.Err() and holds
// nothing, even if the key is free. It returns [ErrQueueFull] at once if too
// many callers wait, and [ErrWaited] after the Queue's MaxWait.
func (m *Mutex) Lock(ctx context.Context, key string) error {
	_, err := m.table(key).Lock(ctx, key)
	return err
}

// TryLock takes key if it is free, and reports whether it did.
func (m *Mutex) TryLock(key string) bool {
	_, err := m.table(key).TryLock(key)
	return err == nil
}

// Unlock gives key to the first that waits for it. It panics if nobody holds
// key. As with [sync.Mutex], any goroutine may unlock it.
func (m *Mutex) Unlock(key string) {
	_, next, ok := m.table(key).leave(key, anyToken)
	if !ok {
		panic(fmt.Sprintf("localmutex: Unlock of key %.64q, which is not held", key))
	}
	wake(next)
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

func (m *Mutex) table(key string) *Table {
	m.once.Do(m.init)
	return &m.tables[maphash.String(m.seed, key)%shards]
}

func (m *Mutex) init() {
	if m.Queue == nil {
		m.Queue = new(Queue)
	}
	m.seed = maphash.MakeSeed()
	m.tables = make([]Table, shards)
	for i := range m.tables {
		m.tables[i].Queue = m.Queue
	}
}
