package client

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/keyway-go/keyway/localmutex/locking"
)

// Mutex is the lock of one key that one caller locks and unlocks repeatedly: a [Lock] in the shape
// of the mutexes of Redis libraries. Callers that exclude each other need a Mutex each. Make one
// with [Client.NewMutex].
type Mutex struct {
	client *Client
	key    string
	opts   []locking.Option

	idle *Lock // stands for none

	mu   sync.Mutex // guards what follows
	used bool       // it is locked, or being locked
	lock *Lock      // idle if it is not locked
}

// NewMutex returns an unlocked Mutex of key, with the options of [Client.Lock]. It makes no call.
func (c *Client) NewMutex(key string, opts ...locking.Option) *Mutex {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errLetGo)
	idle := &Lock{client: c, key: key, ctx: ctx}
	idle.unlocked.Store(true)
	return &Mutex{client: c, key: key, opts: opts, idle: idle, lock: idle}
}

// Lock locks the mutex as [Client.Lock] does. If this Mutex is locked already it returns
// [locking.ErrLocked] at once; if another Mutex of the key is, it waits.
func (m *Mutex) Lock(ctx context.Context) error { return m.acquireLock(ctx, m.client.Lock) }

// TryLock is Lock without a wait, as [Client.TryLock].
func (m *Mutex) TryLock(ctx context.Context) error { return m.acquireLock(ctx, m.client.TryLock) }

func (m *Mutex) acquireLock(ctx context.Context, lock func(context.Context, string, ...locking.Option) (*Lock, error)) error {
	m.mu.Lock()
	if m.used {
		m.mu.Unlock()
		return fmt.Errorf("%w: this Mutex of %q is locked already: give each caller its own Mutex", locking.ErrLocked, m.key)
	}
	m.used = true
	m.mu.Unlock()
	l, err := lock(ctx, m.key, m.opts...)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.used = err == nil; m.used {
		m.lock = l
	}
	return err
}

// Unlock unlocks the mutex as [Lock.Unlock] does. It returns [locking.ErrNotOwner] if the mutex is
// not locked. Afterwards, and also after an error, the Mutex can be locked again.
func (m *Mutex) Unlock(ctx context.Context) error {
	m.mu.Lock()
	l := m.lock
	if l != m.idle {
		m.lock, m.used = m.idle, false
	}
	m.mu.Unlock()
	return l.Unlock(ctx)
}

// Extend is [Lock.Extend].
func (m *Mutex) Extend(ctx context.Context, ttl time.Duration) error {
	return m.present().Extend(ctx, ttl)
}

// Key returns the key.
func (m *Mutex) Key() string { return m.key }

// Token is [Lock.Token]; 0 while the mutex is not locked.
func (m *Mutex) Token() int64 { return m.present().Token() }

// Until is [Lock.Until]; zero while the mutex is not locked.
func (m *Mutex) Until() time.Time {
	if l := m.present(); l != m.idle {
		return l.Until()
	}
	return time.Time{}
}

// Context is [Lock.Context], or a done context while the mutex is not locked.
func (m *Mutex) Context() context.Context { return m.present().Context() }

func (m *Mutex) present() *Lock {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lock
}
