package gossip

import (
	"context"
	"log"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// throttle passes each text once a minute. It needs no lock: its owner has one
// goroutine or one.
type throttle struct {
	last map[string]time.Time
}

const (
	throttlePeriod = time.Minute
	throttleBound  = 256
)

func (t *throttle) pass(text string, now time.Time) bool {
	if last, seen := t.last[text]; seen && now.Sub(last) < throttlePeriod {
		return false
	}
	if t.last == nil || len(t.last) >= throttleBound {
		t.last = make(map[string]time.Time)
	}
	t.last[text] = now
	return true
}

// newLogger returns the logger that memberlist wants. It leads to logger, with
// memberlist's levels, except for what rules say otherwise.
func newLogger(logger *slog.Logger) *log.Logger {
	return log.New(&logWriter{log: logger}, "", 0)
}

type logWriter struct {
	log *slog.Logger

	mu       sync.Mutex
	throttle throttle
}

// rule says what becomes of a line of memberlist that contains a text.
type rule struct {
	contains string
	instead  string // a translation, logged as a warning once a minute with the line; "": the line is logged at debug level
}

// rules are the lines that are translated or demoted; the first that matches counts.
var rules = []rule{
	{ErrRefused.Error(), ""}, // the owner logs it
	{noKeyFits, "a peer encrypts gossip with a key that this member does not have: give both the same --gossip-key"},
	{peerPlain, "a peer does not encrypt gossip, this member does: give the peer this --gossip-key"},
	{peerEncrypted, "a peer encrypts gossip, this member does not: give this member the peer's --gossip-key"},
	{"unacceptable label", "a member of another memberlist program or cluster sends to this address"},
	{"invalid msgType", "a message that is not Keyway's gossip came in: a peer with a --gossip-key, or another program"},
	{"not supported", "a message that is not Keyway's gossip came in: a peer with a --gossip-key, or another program"},
	{"public address without encryption", ""}, // Start has said so
	{"Failed to send", ""},                    // to a dead peer
	{"Failed to forward ack", ""},
	{"Failed fallback TCP ping", ""},
	{"Push/Pull with", ""},
	{"Failed to push local state", ""},
	{"Failed to read remote state", ""},
	{"failed to receive", ""},
	{"unexpected node", ""}, // its address has a new owner
	{"Refuting", ""},
	{"has failed, no acks", ""}, // a suspicion; the owner logs losses
	{"Marking", ""},
	{"Conflicting address", ""}, // the owner logs it
}

func (w *logWriter) Write(p []byte) (int, error) {
	level, text := splitLevel(strings.TrimSpace(string(p)))
	for _, r := range rules {
		if !strings.Contains(text, r.contains) {
			continue
		}
		if r.instead == "" {
			level = slog.LevelDebug
			break
		}
		w.mu.Lock()
		pass := w.throttle.pass(r.contains, time.Now())
		w.mu.Unlock()
		if pass {
			w.log.Warn(r.instead, "memberlist", text)
		}
		return len(p), nil
	}
	w.log.Log(context.Background(), level, text)
	return len(p), nil
}

// splitLevel takes the level off a line such as "[WARN] memberlist: text".
func splitLevel(line string) (slog.Level, string) {
	level := slog.LevelWarn
	if name, text, ok := strings.Cut(line, "] "); ok && strings.HasPrefix(name, "[") {
		line = text
		if name == "[ERR" {
			name = "[ERROR"
		}
		_ = level.UnmarshalText([]byte(name[1:])) // an unknown one is a warning
	}
	return level, strings.TrimPrefix(line, "memberlist: ")
}
