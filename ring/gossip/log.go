package gossip

import (
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

// newLogger returns the logger that memberlist wants. It leads to logger at debug level, except for what advice
// translates: the owner logs what else an operator should know.
func newLogger(logger *slog.Logger) *log.Logger {
	return log.New(&logWriter{log: logger}, "", 0)
}

type logWriter struct {
	log *slog.Logger

	mu       sync.Mutex
	throttle throttle
}

// advice says what operators can mend. A line of memberlist with one of the texts is logged with its translation, as a
// warning once a minute.
var advice = []struct{ contains, instead string }{
	{noKeyFits, "a peer encrypts gossip with a key that this member does not have: give both the same --gossip-key"},
	{peerPlain, "a peer does not encrypt gossip, this member does: give the peer this --gossip-key"},
	{peerEncrypted, "a peer encrypts gossip, this member does not: give this member the peer's --gossip-key"},
	{"unacceptable label", "a member of another memberlist program or cluster sends to this address"},
	{"invalid msgType", "a message that is not Keyway's gossip came in: a peer with a --gossip-key, or another program"},
	{"not supported", "a message that is not Keyway's gossip came in: a peer with a --gossip-key, or another program"},
	{"over TCP but UDP probes failed", "a peer answers over TCP but not over UDP: let UDP pass between the --gossip addresses"},
}

func (w *logWriter) Write(p []byte) (int, error) {
	text := strings.TrimSpace(string(p))
	for _, a := range advice {
		if !strings.Contains(text, a.contains) {
			continue
		}
		w.mu.Lock()
		pass := w.throttle.pass(a.contains, time.Now())
		w.mu.Unlock()
		if pass {
			w.log.Warn(a.instead, "memberlist", text)
		}
		return len(p), nil
	}
	w.log.Debug(text)
	return len(p), nil
}
