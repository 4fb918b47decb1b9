package lock

import (
	"context"
	"log/slog"
	"strings"
	"time"
)

// Event is something that happened to a lock.
type Event struct {
	Keys  []string // must not be changed
	Read  bool
	Label string        // of the holder or waiter
	Token int64         // fencing token, if granted
	Wait  time.Duration // from the call until granted
	Held  time.Duration // since granted
	Local bool          // granted by the caller before, without asking Redis
	Err   error         // what failed
}

// Hooks are called on events, sometimes while a caller waits. They must be quick and safe for
// concurrent use. Any may be nil.
type Hooks struct {
	Waited      func(Event) // a caller found the lock taken and begins to wait
	Acquired    func(Event) // with Wait
	Refused     func(Event) // a try or a wait ended without the lock, with Wait and Err
	Renewed     func(Event)
	RenewFailed func(Event) // one renewal failed, with Err; more follow while there is time
	Expired     func(Event) // the context ended because renewals failed, with Held and Err
	Lost        func(Event) // the lock was gone or another's, with Held and Err
	Released    func(Event) // unlocked, with Held; Err is nil, locking.ErrNotOwner or ErrUnlockUnknown
	Detached    func(Event) // the lock was handed to another process, with Held
	Attached    func(Event) // and was taken over from one
}

// happening is a kind of event.
type happening uint8

const (
	waited happening = iota
	acquired
	refused
	renewed
	renewFailed
	expired
	lost
	released
	detached
	attached
	happenings
)

func (h happening) String() string {
	return [happenings]string{"waited for", "acquired", "refused", "renewed", "not renewed", "expired", "lost", "released", "detached", "attached"}[h]
}

func (h *Hooks) of(what happening) func(Event) {
	return [happenings]func(Event){h.Waited, h.Acquired, h.Refused, h.Renewed, h.RenewFailed, h.Expired, h.Lost, h.Released, h.Detached, h.Attached}[what]
}

// emit counts an event of a caller with ctx, tells the hook for it, and logs it.
func (l *Locker) emit(ctx context.Context, what happening, of ask, e Event) {
	e.Keys, e.Read, e.Label = of.names, of.read, of.opts.Label
	level := slog.LevelDebug
	if what == renewFailed || what == expired || what == lost || what == released && e.Err != nil {
		level = slog.LevelWarn
	}
	l.counts.countEvent(ctx, what, e)
	if hook := l.cfg.Hooks.of(what); hook != nil {
		hook(e)
	}
	if !l.cfg.Logger.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{slog.String("keys", strings.Join(e.Keys, " ")), slog.Bool("read", e.Read)}
	for _, a := range []struct {
		said bool
		attr slog.Attr
	}{
		{e.Label != "", slog.String("label", e.Label)}, {e.Token != 0, slog.Int64("token", e.Token)}, {e.Wait != 0, slog.Duration("wait", e.Wait)}, {e.Held != 0, slog.Duration("held", e.Held)},
		{e.Local, slog.Bool("local", true)}, {e.Err != nil, slog.Any("error", e.Err)},
	} {
		if a.said {
			attrs = append(attrs, a.attr)
		}
	}
	l.cfg.Logger.LogAttrs(ctx, level, "lock "+what.String(), attrs...)
}
