package ownership

import (
	"slices"
	"time"

	"github.com/keyway-go/keyway/internal/metrics"
	"github.com/keyway-go/keyway/internal/status"
)

const (
	maxBursts    = 64                     // that are remembered
	burstQuiet   = 300 * time.Millisecond // without a further move, after which a burst is over
	burstLongest = 10 * time.Second       // after which it is logged even so
)

// burst is moves of one kind. It grows while they follow each other closely, and is then logged;
// Moves.mu guards it.
type burst struct {
	direction direction
	reason    reason
	peer      string // name of the other worker; "" for none
	count     int
	began     time.Time
	last      time.Time
	longest   time.Duration
	residue   int
	running   int
	logged    bool
}

// noteLocked adds one partition to the burst of its kind.
func (m *Moves) noteLocked(d direction, why reason, peer string, took time.Duration, residue int) *burst {
	m.counts[d][why].Add(1)
	m.took[d].Observe(took)
	now, name := time.Now(), m.nameLocked(peer)
	i := slices.IndexFunc(m.bursts, func(b *burst) bool {
		return !b.logged && b.direction == d && b.reason == why && b.peer == name
	})
	if i < 0 {
		if len(m.bursts) == maxBursts {
			m.logLocked(m.bursts[0])
			m.bursts = slices.Delete(m.bursts, 0, 1)
		}
		i = len(m.bursts)
		m.bursts = append(m.bursts, &burst{direction: d, reason: why, peer: name, began: now})
	}
	b := m.bursts[i]
	b.count++
	b.last, b.longest = now, max(b.longest, took)
	b.residue += residue
	b.running += residue
	return b
}

// flush logs the bursts that are over, and residue that lasts. It returns after how
// long it wants to be called again.
func (m *Moves) flush() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, wait := time.Now(), time.Hour
	for _, b := range m.bursts {
		if b.logged {
			continue
		}
		left := min(burstQuiet-now.Sub(b.last), burstLongest-now.Sub(b.began))
		if left <= 0 {
			m.logLocked(b)
			continue
		}
		wait = min(wait, left)
	}
	if m.alarmAt.IsZero() {
		return wait
	}
	if !now.Before(m.alarmAt) {
		m.warnLocked(now)
	}
	return min(wait, max(m.alarmAt.Sub(now), 0))
}

// logLocked logs a burst, once.
func (m *Moves) logLocked(b *burst) {
	if b.logged {
		return
	}
	b.logged = true
	args := []any{"worker", m.cfg.Name, "partitions", b.count}
	if b.peer != "" {
		args = append(args, []string{"from", "to", "to"}[b.direction], b.peer)
	}
	args = append(args, "because", because[b.direction][b.reason], "took", b.longest.Round(time.Millisecond))
	if b.running > 0 {
		args = append(args, []string{"keys_still_running_there", "keys_still_running_here", "keys_still_running_here"}[b.direction], b.running)
	}
	if b.direction == moveLost {
		m.cfg.Logger.Warn(moveMessages[b.direction], args...)
		return
	}
	m.cfg.Logger.Info(moveMessages[b.direction], args...)
}

// Report passes on the numbers of moved partitions by direction and reason, and how long moves took.
func (m *Moves) Report(count func(direction, reason string, n int64), times func(direction string, took metrics.Distribution)) {
	for d := range directions {
		for why := range reasons {
			if n := m.counts[d][why].Load(); n > 0 {
				count(directionNames[d], reasonNames[why], n)
			}
		}
		times(directionNames[d], m.took[d].Distribution())
	}
}

// Recent returns what is remembered, the latest first.
func (m *Moves) Recent() []status.Move {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]status.Move, 0, len(m.bursts))
	for _, b := range slices.Backward(m.bursts) {
		list = append(list, status.Move{
			Direction: directionNames[b.direction], Reason: reasonNames[b.reason], Because: because[b.direction][b.reason], Worker: b.peer,
			Partitions: b.count, Began: b.began, Ended: b.last, LongestSeconds: b.longest.Seconds(), Residue: b.residue, Running: b.running,
		})
	}
	return list
}
