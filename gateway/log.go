package gateway

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// logInterval is the least time between two lines of one kind about requests.
const logInterval = 10 * time.Second

// newRequestLog returns a logger for what clients can bring about at will. Above
// the level debug it logs a line of each kind, which is its message, once per
// logInterval; "suppressed" in the next one says how many it did not log. So a
// message must be a constant.
func newRequestLog(l *slog.Logger) *slog.Logger {
	return slog.New(&limitedHandler{l.Handler(), &logLimits{kinds: make(map[string]*logKind)}})
}

// logFailure logs why a request failed, with a warning unless that is empty: for
// what is up to the client.
func logFailure(ctx context.Context, l *slog.Logger, warning string, args ...any) {
	level, message := slog.LevelWarn, warning
	if warning == "" {
		level, message = slog.LevelDebug, "request failed"
	}
	l.Log(context.WithoutCancel(ctx), level, message, args...)
}

type limitedHandler struct {
	slog.Handler
	limits *logLimits
}

// Handle implements [slog.Handler].
func (h *limitedHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level > slog.LevelDebug {
		suppressed, due := h.limits.due(r.Message)
		if !due {
			return nil
		}
		if suppressed > 0 {
			r = r.Clone()
			r.AddAttrs(slog.Int("suppressed", suppressed))
		}
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h *limitedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &limitedHandler{h.Handler.WithAttrs(attrs), h.limits}
}

// WithGroup implements [slog.Handler].
func (h *limitedHandler) WithGroup(name string) slog.Handler {
	return &limitedHandler{h.Handler.WithGroup(name), h.limits}
}

type logLimits struct {
	mu    sync.Mutex // guards what follows
	kinds map[string]*logKind
}

type logKind struct {
	logged     time.Time // the last line
	suppressed int       // since
}

// due reports whether a line of the kind may be logged now, and how many were
// suppressed since the last one.
func (l *logLimits) due(message string) (suppressed int, due bool) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.kinds[message]
	switch {
	case k == nil:
		k = new(logKind)
		l.kinds[message] = k
	case now.Sub(k.logged) < logInterval:
		k.suppressed++
		return 0, false
	}
	suppressed = k.suppressed
	k.logged, k.suppressed = now, 0
	return suppressed, true
}
