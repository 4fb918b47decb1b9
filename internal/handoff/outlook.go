package handoff

import (
	"github.com/keyway-go/keyway/internal/records"
	"slices"
	"time"
)

// Obstacle is what keeps a partition that no worker serves from being claimed.
type Obstacle uint8

// The obstacles to a claim.
const (
	ObstacleNone       Obstacle = iota // nothing that takes a known time
	ObstacleSession                    // this incarnation's session is not confirmed by the store
	ObstacleSettle                     // the members changed a moment ago
	ObstacleQuarantine                 // the store is new or was restarted: nothing is claimed for a TTL
	ObstacleOwner                      // the session of the owner that the record names is not over
)

// Outlook says when partitions that no worker serves can be claimed, as far as one incarnation
// knows. It never changes, so any goroutine may use it. It decides nothing: the machine claims by
// what it knows at that time.
type Outlook struct {
	live       bool
	settled    time.Duration // these are Mono
	quarantine time.Duration
	stored     time.Duration // when the store's own quarantine ends
	first      bool
	sessions   []records.SessionState   // in the latest snapshot
	renewed    time.Duration            // when they end, if none is renewed
	ends       map[string]time.Duration // of incarnations that have no session, or whose latest renewal is known: when they are over
	released   []string
}

// Outlook returns what the machine knows now.
func (m *Machine) Outlook() *Outlook {
	o := &Outlook{
		live:       m.phase == phaseLive && m.observed,
		settled:    m.settled,
		quarantine: m.quarantine,
		first:      m.first,
		released:   m.snapshot.Released,
		sessions:   m.snapshot.Sessions,
		renewed:    m.asked + m.cfg.TTL,
	}
	if !m.stored() {
		o.stored = m.asked + m.snapshot.Quarantine
	}
	for inc, p := range m.peers {
		known := p.suspect && p.stamp != 0
		if p.present && !known {
			continue
		}
		if o.ends == nil {
			o.ends = make(map[string]time.Duration, len(m.peers))
		}
		if o.ends[inc] = p.deadAt; p.present {
			o.ends[inc] = p.seen + m.cfg.TTL
		}
	}
	return o
}

// Quarantine returns when, on the monotonic clock, the store's age no longer prevents claims of
// unowned partitions.
func (o *Outlook) Quarantine() time.Duration { return max(o.quarantine, o.stored) }

// Claimable returns how much longer, at now on the monotonic clock, the worker that the ring gives
// a partition with that record cannot claim it, and why. If there are several obstacles, it returns
// the longest. The time is 0 if it is unknown.
func (o *Outlook) Claimable(r records.Record, now time.Duration) (wait time.Duration, because Obstacle) {
	if !o.live {
		return 0, ObstacleSession
	}
	note := func(until time.Duration, what Obstacle) {
		if left := until - now; left > wait {
			wait, because = left, what
		}
	}
	released := slices.Contains(o.released, r.Owner)
	if !released {
		note(o.settled, ObstacleSettle)
	}
	note(o.stored, ObstacleQuarantine)
	if !released || !o.first {
		note(o.quarantine, ObstacleQuarantine)
	}
	if r.Owner == "" || released {
		return wait, because
	}
	end, known := o.ends[r.Owner]
	switch {
	case !known && !shows(o.sessions, r.Owner):
		return 0, ObstacleOwner
	case !known:
		end = o.renewed
	}
	note(end, ObstacleOwner)
	return wait, because
}
