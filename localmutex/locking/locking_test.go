package locking_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/keyway-go/keyway/localmutex/locking"
)

// one is a lock of one key for one caller, without anything behind it.
type one struct {
	held bool
	said locking.Options
}

func (o *one) Lock(ctx context.Context, key string, opts ...locking.Option) (*held, error) {
	return o.TryLock(ctx, key, opts...)
}

func (o *one) TryLock(ctx context.Context, _ string, opts ...locking.Option) (*held, error) {
	o.said, _ = locking.Apply(opts)
	if o.held {
		return nil, locking.ErrLocked
	}
	o.held = true
	return &held{o, ctx}, nil
}

type held struct {
	one *one
	ctx context.Context
}

func (h *held) Context() context.Context                    { return h.ctx }
func (h *held) Token() int64                                { return 1 }
func (h *held) Until() time.Time                            { return time.Now().Add(time.Second) }
func (h *held) Extend(context.Context, time.Duration) error { return nil }

func (h *held) Unlock(context.Context) error {
	h.one.held = false
	return nil
}

// A nil pointer never becomes a Lease that is not nil, and options arrive.
func TestOf(t *testing.T) {
	o := &one{}
	l := locking.Of(o)
	lease, err := l.Lock(t.Context(), "key", locking.TTL(time.Hour), locking.TTL(time.Minute), locking.Wait(time.Second), locking.Label("me"))
	if lease == nil || err != nil {
		t.Fatalf("Lock: %v, %v", lease, err)
	}
	if want := (locking.Options{TTL: time.Minute, Wait: time.Second, Label: "me"}); o.said != want {
		t.Errorf("options %+v, want %+v", o.said, want)
	}
	for _, take := range []func(context.Context, string, ...locking.Option) (locking.Lease, error){l.Lock, l.TryLock} {
		if lease, err := take(t.Context(), "key"); lease != nil || !errors.Is(err, locking.ErrLocked) {
			t.Errorf("%v, %v", lease, err)
		}
	}
	if o.said != (locking.Options{}) {
		t.Errorf("options %+v of a call without any", o.said)
	}
	if err := lease.Unlock(t.Context()); err != nil || o.held {
		t.Errorf("Unlock: %v, held: %t", err, o.held)
	}
}

// Code that locks knows the interface alone.
func ExampleOf() {
	work := func(ctx context.Context, locker locking.Locker) error {
		lease, err := locker.Lock(ctx, "order:42", locking.TTL(time.Minute))
		if err != nil {
			return err
		}
		defer lease.Unlock(context.WithoutCancel(ctx))
		fmt.Println("token", lease.Token())
		return lease.Context().Err()
	}
	fmt.Println(work(context.Background(), locking.Of(&one{}))) // or of a lock.Locker
	// Output:
	// token 1
	// <nil>
}
