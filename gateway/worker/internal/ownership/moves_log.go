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

// flush logs the bursts that are over. It returns after how long it wants to be called again.
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
	return wait
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

// direction says whether a partition comes or leaves.
type direction uint8

// The directions of moves.
const (
	moveTaken direction = iota // this worker took it over
	moveGiven                  // this worker gave it away
	moveLost                   // it was taken from this worker
	directions
)

// reason is why a partition moves.
type reason uint8

// The reasons of moves.
const (
	moveJoin       reason = iota // the taker came onto the ring
	moveRebalance                // the ring gave it to another one of its workers
	movePlacement                // it was placed, or is not any more
	moveLeave                    // the giver leaves for good
	moveDrain                    // the giver, this worker, was told to leave the ring
	moveApp                      // the app of this worker, the giver, does not answer
	moveStore                    // this worker, the giver, uses another store than others
	moveWithdrawn                // the giver, another worker, is off the ring for one of the three
	moveDeath                    // the former owner has died
	moveRestart                  // and was started again
	moveSession                  // this worker has lost its session
	moveClaimed                  // another worker owns it without having been given it
	moveUnowned                  // nobody had it
	moveQuarantine               // and the store was so young that it was not to be claimed
	reasons
)

var (
	directionNames = [directions]string{"taken", "given", "lost"}
	reasonNames    = [reasons]string{"join", "rebalance", "placement", "leave", "drain", "app", "store", "withdrawn", "death", "restart", "session", "claimed", "unowned", "quarantine"}
	moveMessages   = [directions]string{"partitions taken over", "partitions given away", "partitions lost"}
	because        = [directions][reasons]string{
		moveTaken: {
			moveJoin: "this worker joined the ring", moveRebalance: "the ring changed", movePlacement: "the placements changed", moveLeave: "it leaves",
			moveWithdrawn: "it is off the ring: it was drained, or its app does not answer", moveDeath: "it has ended", moveRestart: "it was started again",
			moveSession: "this worker had lost its session", moveUnowned: "nobody had them", moveQuarantine: "nobody had them, and the store was new or had lost data",
		},
		moveGiven: {
			moveJoin: "it joined the ring", moveRebalance: "the ring changed", movePlacement: "the placements changed", moveLeave: "this worker leaves", moveDrain: "this worker is drained",
			moveApp: "this worker's app does not answer", moveStore: "this worker uses another store",
		},
		moveLost: {moveSession: "this worker lost its session", moveClaimed: "another worker owns them without having been given them: the store lost data"},
	}
)
