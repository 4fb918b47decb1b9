package holder

import "github.com/keyway-go/keyway/ring/lease"

// Close notes that the client was closed.
func (l *Lock) Close() {
	if l.state < closed {
		l.setState(closed)
	}
}

// End ends the caller, or gives back a lock that nobody works with. waits says that another caller waits for its turn. The
// lock passes to that caller if a token is reserved and the lock is as good as another one would be.
func (l *Lock) End(now lease.Instant, waits bool) Decision {
	switch {
	case l.state == closed:
		l.setState(over)
		return TellUnknown
	case waits && l.state != granted && l.turns > 0 && l.Sure(now):
		l.setState(passing)
		l.token, l.next, l.turns = l.next, l.next+1, l.turns-1
		return Pass
	case l.state == granted:
		l.lease.Surrender = now.Add(max(l.term, l.ttl)) // the owner may have granted it just now
	}
	l.setState(releasing)
	return Release
}

// Answered takes a worker's answer to a release. repeated says that an earlier call may have had its effect.
func (l *Lock) Answered(a Answer, repeated bool) Decision {
	l.note(a, repeated)
	switch {
	case a == Elsewhere || a == Released:
		return ReleaseAtOwner
	case a == Held || l.state == freed:
		l.setState(over)
		return TellReleased
	case l.state == repeating:
		l.setState(over)
		return TellUnanswered
	}
	l.setState(over)
	return TellNotOwner
}

// note writes down what calls have done, or may have.
func (l *Lock) note(a Answer, repeated bool) {
	switch {
	case a == Released && l.state != freed:
		l.setState(freed)
	case repeated && l.state == releasing:
		l.setState(repeating)
	}
}

// Unanswered notes that a release has no answer. repeated says that it may have had its effect, elsewhere that the worker
// that was asked does not own the partition.
func (l *Lock) Unanswered(repeated, elsewhere bool) Decision {
	l.note(Gone, repeated)
	if elsewhere {
		return ReleaseAtOwner
	}
	return Release
}

// GiveUp notes that a release has had no answer for as long as one is waited for. stopped says that no worker is asked any more.
func (l *Lock) GiveUp(now lease.Instant, stopped bool) Decision {
	if stopped || l.lease.Surrender.Passed(now) {
		l.setState(over)
		return TellUnknown
	}
	return ReleaseAtOwner
}
