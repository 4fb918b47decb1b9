// Package requestlog logs what clients can bring about at will: of each kind a
// line in ten seconds.
package requestlog

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// logInterval is the least time between two lines of one kind about requests.
const logInterval = 10 * time.Second

// New returns a logger for messages that clients can cause at will. Above the level debug it logs
// one line of each kind per logInterval. The attribute "suppressed" counts those since the last
// line. A kind is a message, so messages must be constants.
func New(l *slog.Logger) *slog.Logger {
	return slog.New(&limitedHandler{l.Handler(), &limits{kinds: make(map[string]*kind)}})
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
	limits *limits
}

func (h *limitedHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level > slog.LevelDebug {
		suppressed, logs := h.limits.take(r.Message)
		if !logs {
			return nil
		}
		if suppressed > 0 {
			r = r.Clone()
			r.AddAttrs(slog.Int("suppressed", suppressed))
		}
	}
	return h.Handler.Handle(ctx, r)
}

func (h *limitedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &limitedHandler{h.Handler.WithAttrs(attrs), h.limits}
}

func (h *limitedHandler) WithGroup(name string) slog.Handler {
	return &limitedHandler{h.Handler.WithGroup(name), h.limits}
}

type limits struct {
	mu    sync.Mutex // guards what follows
	kinds map[string]*kind
}

type kind struct {
	logged     time.Time // the last line
	suppressed int       // since then
}

// take reports whether a line may be logged now, and how many were suppressed since the last one.
func (l *limits) take(message string) (suppressed int, logs bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.kinds[message]
	if k == nil {
		k = new(kind)
		l.kinds[message] = k
	}
	now := time.Now()
	if now.Sub(k.logged) < logInterval {
		k.suppressed++
		return 0, false
	}
	suppressed, k.suppressed, k.logged = k.suppressed, 0, now
	return suppressed, true
}
