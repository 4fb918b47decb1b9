// Package requestlog logs what clients can bring about at will: of each kind a
// line in ten seconds.
package requestlog

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// logInterval is the least time between two lines of one kind about requests.
const logInterval = 10 * time.Second

// New returns a logger for messages that clients can cause at will. Above the level debug it logs
// one line of each kind per logInterval, at once or at the end of the interval; the attribute
// "suppressed" counts the others. A kind is a message, so messages must be constants. flush logs
// the lines that wait for the end of an interval.
func New(l *slog.Logger) (limited *slog.Logger, flush func()) {
	limits := &logLimits{kinds: make(map[string]*logKind)}
	return slog.New(&limitedHandler{l.Handler(), limits}), limits.flush
}

// Failure logs why a request failed: as a warning, or at level debug if warning is empty, because
// the client caused it.
func Failure(ctx context.Context, l *slog.Logger, warning string, args ...any) {
	level, message := slog.LevelWarn, warning
	if warning == "" {
		level, message = slog.LevelDebug, "request failed"
	}
	l.Log(context.WithoutCancel(ctx), level, message, args...)
}

// limitedHandler implements [slog.Handler].
type limitedHandler struct {
	slog.Handler
	limits *logLimits
}

func (h *limitedHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level > slog.LevelDebug && h.limits.holds(h.Handler, r) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h *limitedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &limitedHandler{h.Handler.WithAttrs(attrs), h.limits}
}

func (h *limitedHandler) WithGroup(name string) slog.Handler {
	return &limitedHandler{h.Handler.WithGroup(name), h.limits}
}

type logLimits struct {
	mu    sync.Mutex // guards what follows
	kinds map[string]*logKind
}

type logKind struct {
	logged time.Time // the last line
	held   *heldLine // what has come since; nil if nothing has
}

// heldLine is a line for the end of the interval.
type heldLine struct {
	record     slog.Record // the first that came
	to         slog.Handler
	suppressed int // that came after it
	due        *time.Timer
}

// holds reports whether a line is not to be logged now.
func (l *logLimits) holds(to slog.Handler, r slog.Record) bool {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.kinds[r.Message]
	if k == nil {
		k = new(logKind)
		l.kinds[r.Message] = k
	}
	left := logInterval - now.Sub(k.logged)
	switch {
	case k.held != nil:
		k.held.suppressed++
	case left <= 0:
		k.logged = now
		return false
	default:
		k.held = &heldLine{record: r.Clone(), to: to, due: time.AfterFunc(left, func() { l.endKind(k) })}
	}
	return true
}

// endKind logs what is held of a kind.
func (l *logLimits) endKind(k *logKind) {
	l.mu.Lock()
	held := k.held
	k.held, k.logged = nil, time.Now()
	l.mu.Unlock()
	if held == nil {
		return
	}
	held.due.Stop()
	if held.suppressed > 0 {
		held.record.AddAttrs(slog.Int("suppressed", held.suppressed))
	}
	_ = held.to.Handle(context.Background(), held.record)
}

func (l *logLimits) flush() {
	l.mu.Lock()
	kinds := slices.Collect(maps.Values(l.kinds))
	l.mu.Unlock()
	for _, k := range kinds {
		l.endKind(k)
	}
}
