package holding

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/internal/lease"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// Tenure is one caller's time with a hold. It lasts until its last use has ended. The work may end
// before, when the lock may be lost.
type Tenure struct {
	Token  int64
	Since  time.Time
	Parent context.Context // of the context of the work

	hold *Hold
	made sync.Once
	ctx  context.Context // written once, when it is first asked for

	// Guarded by the mutex of the Set.
	uses   int                     // that have not ended
	cancel context.CancelCauseFunc // of ctx; nil before that is made
	cause  error                   // why the work has ended, nil while it lasts
}

// Backend returns what the back end knows of the lock.
func (t *Tenure) Backend() Backend { return t.hold.backend }

// Context returns the context of the work.
func (t *Tenure) Context() context.Context {
	t.made.Do(func() {
		inner, cancel := context.WithCancelCause(t.Parent) // without the mutex: it may find that a lock around this one has expired
		t.hold.set.Lock()
		defer t.hold.set.Unlock()
		if t.ctx, t.cancel = (&workContext{inner, t}), cancel; t.cause != nil {
			cancel(t.cause)
		}
	})
	return t.ctx
}

// While calls then at once, with the mutex of the Set locked, if the lock is still the caller's. Else
// it returns a locking.ErrNotOwner that says why the work has ended. It compares the clocks.
func (t *Tenure) While(then func(now lease.Instant)) error {
	h := t.hold
	h.set.Lock()
	defer h.set.Unlock()
	now := h.set.Now()
	if h.CheckLocked(now); t.cause != nil {
		return NotOwner(t.cause)
	}
	then(now)
	return nil
}

// Left returns how much longer the lock is the caller's without a renewal. Its error is that of While.
func (t *Tenure) Left() (left time.Duration, err error) {
	err = t.While(func(now lease.Instant) { left = t.hold.Lock.Left(now) })
	return left, err
}

// Err returns the error of Left.
func (t *Tenure) Err() error {
	_, err := t.Left()
	return err
}

// Alone makes a call about the lock while no other one is under way that allows no other.
func (t *Tenure) Alone(ctx context.Context, call func() error) error {
	select {
	case t.hold.calls <- struct{}{}:
		defer t.hold.EndCall()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := t.Err(); err != nil {
		return err
	}
	return call()
}

// IsSharedLocked reports whether calls within the work use the lock as well.
func (t *Tenure) IsSharedLocked() bool { return t.uses > 1 }

func (t *Tenure) endLocked(cause error) {
	if t.cause != nil {
		return
	}
	if t.cause = cause; t.cancel != nil {
		t.cancel(cause)
	}
}

// Use is a caller's part in a tenure: the first one's, or that of a call within the work. It keeps the lock until it ends.
type Use struct {
	*Tenure
	ctx context.Context // of a call within; nil for that of the tenure
	end func(cause error)
}

// Context returns the context of the use. It ends with the work, and with the use.
func (u *Use) Context() context.Context {
	if u.ctx != nil {
		return u.ctx
	}
	return u.Tenure.Context()
}

// EndLocked ends a use, with the cause for its context. last says that the back end is to end the
// hold. err is why the work had ended before.
func (u *Use) EndLocked(cause error) (last bool, err error) {
	t := u.Tenure
	if u.end != nil {
		u.end(cause)
	}
	t.uses--
	if last = t.uses == 0; !last {
		t.hold.CheckLocked(t.hold.set.Now())
		return false, t.cause
	}
	err = t.cause
	t.endLocked(cause)
	return true, err
}

// Told returns the error of an Unlock of keys whose release has that end. cause is why the work had
// ended before, nil if it had not, and err the error of the last call.
func Told(d holder.Decision, keys []string, cause, err error) error {
	switch {
	case d == holder.TellReleased:
		return nil
	case d == holder.TellUnanswered:
		return fmt.Errorf("%w: %q: its owner does not hold it any more, and has not answered before", locking.ErrUnlockUnknown, keys)
	case d != holder.TellNotOwner:
		return fmt.Errorf("%w: %q: %w", locking.ErrUnlockUnknown, keys, err)
	case cause != nil:
		return NotOwner(cause)
	}
	return fmt.Errorf("%w: %q: its owner does not hold it any more", locking.ErrNotOwner, keys)
}

// NotOwner returns the error of a caller whose work has ended with cause, nil for nil.
func NotOwner(cause error) error {
	if cause == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", locking.ErrNotOwner, cause)
}

// Why a lock cannot be used within the work that ctx belongs to.
var (
	ErrPartly = errors.New("are held in part: its caller holds some of the keys, but not all by one call")
	ErrShared = errors.New("is locked by the caller for reading: unlock it before you lock it for writing")
)

// Within returns a use within the work that ctx belongs to and that has all the keys, none if no work
// has any. Its context descends from ctx, and ends with the work even if ctx does not.
func (s *Set) Within(ctx context.Context, shared bool, keys ...string) (_ Use, err error) {
	t := s.along(ctx, keys[0])
	for _, key := range keys[1:] {
		if s.along(ctx, key) != t {
			return Use{}, ErrPartly
		}
	}
	if t == nil {
		return Use{}, nil
	}
	inner, end := under(ctx, t.Context())
	s.Lock()
	defer s.Unlock()
	switch t.hold.CheckLocked(s.Now()); {
	case t.uses == 0: // it has ended meanwhile
	case t.cause != nil:
		err = t.cause
	case t.hold.Shared && !shared:
		err = ErrShared
	default:
		t.uses++
		return Use{t, &workContext{inner, t}, end}, nil
	}
	end(nil)
	return Use{}, err
}

// under returns a context that descends from ctx and ends with outer as well, and what ends it before.
func under(ctx, outer context.Context) (_ context.Context, end func(cause error)) {
	inner, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(outer, func() { cancel(context.Cause(outer)) })
	return inner, func(cause error) {
		unhook()
		cancel(cause)
	}
}

// along returns the innermost tenure along ctx that has the key, nil if none has.
func (s *Set) along(ctx context.Context, key string) *Tenure {
	if workAlong(ctx) == nil {
		return nil
	}
	t, _ := ctx.Value(keyIn{s, key}).(*Tenure)
	return t
}

// has reports whether t lasts and is one of key.
func (t *Tenure) has(key string) bool {
	t.hold.set.Lock()
	defer t.hold.set.Unlock()
	return t.uses > 0 && slices.Contains(t.hold.Keys, key)
}

// workContext is the context of work with a lock.
type workContext struct {
	context.Context
	tenure *Tenure
}

// Key is the key of a context's value that is not nil within work with a lock of that key at a worker.
type Key string

// keyIn finds the tenure of a key of a Set along a context.
type keyIn struct {
	set *Set
	key string
}

// FindsHolder marks the keys of context values that find who holds a key.
func (Key) FindsHolder()   {}
func (keyIn) FindsHolder() {}

// innermost finds the workContext that a context descends from.
type innermost struct{}

// workAlong returns the innermost workContext that ctx descends from, nil for none.
func workAlong(ctx context.Context) *workContext {
	c, _ := ctx.Value(innermost{}).(*workContext)
	return c
}

// Err implements [context.Context]. It compares the clocks for all locks along c: a process that was
// stopped may have missed their ends.
func (c *workContext) Err() error {
	for along := c; along != nil; along = workAlong(along.Context) {
		_ = along.tenure.Err()
	}
	return c.Context.Err()
}

func (c *workContext) Value(key any) any {
	t, found := c.tenure, false
	switch k := key.(type) {
	case innermost:
		return c
	case Key:
		found = t.hold.set.Policy.Keeper == holder.Worker && t.has(string(k))
	case keyIn:
		found = t.hold.set == k.set && t.has(k.key)
	}
	if found {
		return t
	}
	return c.Context.Value(key)
}
