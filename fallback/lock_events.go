package fallback

import (
	"context"
	"log/slog"
	"strings"
	"time"
)

// LockEvent is something that happened to a lock.
type LockEvent struct {
	Keys  []string // must not be changed
	Read  bool
	Token int64         // fencing token, if granted
	Wait  time.Duration // from the call until granted
	Held  time.Duration // since granted
	Local bool          // granted by the caller before, without asking Redis
	Err   error         // what failed
}

// LockHooks are called as things happen, some of them while a caller waits:
// they must be quick and safe for concurrent use. Any may be nil.
type LockHooks struct {
	Waited      func(LockEvent) // a caller found the lock taken and begins to wait
	Acquired    func(LockEvent) // with Wait
	Refused     func(LockEvent) // a try or a wait ended without the lock, with Wait and Err
	Renewed     func(LockEvent)
	RenewFailed func(LockEvent) // one renewal failed, with Err; more follow while there is time
	Expired     func(LockEvent) // the context ended because renewals failed, with Held and Err
	Lost        func(LockEvent) // the lock was gone or another's, with Held and Err
	Released    func(LockEvent) // unlocked, with Held; Err is nil, ErrNotOwner or ErrUnlockUnknown
}

func (l *Locker) emit(hook func(LockEvent), level slog.Level, what string, e LockEvent) {
	if hook != nil {
		hook(e)
	}
	if l.opts.Logger == nil || !l.opts.Logger.Enabled(context.Background(), level) {
		return
	}
	attrs := []slog.Attr{slog.String("keys", strings.Join(e.Keys, " ")), slog.Bool("read", e.Read)}
	if e.Token != 0 {
		attrs = append(attrs, slog.Int64("token", e.Token))
	}
	if e.Wait != 0 {
		attrs = append(attrs, slog.Duration("wait", e.Wait))
	}
	if e.Held != 0 {
		attrs = append(attrs, slog.Duration("held", e.Held))
	}
	if e.Local {
		attrs = append(attrs, slog.Bool("local", true))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.Any("error", e.Err))
	}
	l.opts.Logger.LogAttrs(context.Background(), level, "lock "+what, attrs...)
}
