package holder

import (
	"time"

	"github.com/keyway-go/keyway/internal/lease"
)

// Close records that the client was closed. It returns CancelGone if that ends the caller's work.
func (l *Lock) Close() (d Decision) {
	if l.state <= working {
		d = CancelGone
	}
	if l.state < closed {
		l.setState(closed)
	}
	return d
}

// Rest returns for how long others cannot have l, whether or not its caller works.
func (l *Lock) Rest(now lease.Instant) time.Duration { return l.lease.Surrender.Left(now) }

// Leave records that another process continues with l. It returns CancelGone if there is nothing to
// continue.
func (l *Lock) Leave(now lease.Instant) Decision {
	switch d := l.Check(now); {
	case d != Wait:
		return d
	case l.state != working:
		return CancelGone
	}
	l.setState(over)
	return Wait
}

// End ends the caller's work, or releases a lock that has no caller. waits says that another caller
// waits for its turn. The lock passes to that caller if a token is reserved, turns may continue and
// the lock is as good as a new one.
func (l *Lock) End(now lease.Instant, waits bool) Decision {
	switch {
	case l.state == closed && l.policy.Keeper == Worker:
		l.setState(over)
		return TellUnknown
	case waits && l.state != granted && l.turns > 0 && now.Mono-l.granted <= l.policy.TurnsFor && l.Sure(now):
		l.setState(passing)
		l.token, l.next, l.turns = l.next, l.next+1, l.turns-1
		return Pass
	case l.state == granted:
		l.lease.Surrender = now.Add(max(l.term, l.policy.TTL)) // the owner may have granted it just now
	}
	l.setState(releasing)
	return Release
}

// Answered takes the answer to a release. repeated says that an earlier call may have had its effect.
func (l *Lock) Answered(now lease.Instant, a Answer, repeated bool) Decision {
	l.noteAnswer(a, repeated)
	told := TellNotOwner
	switch {
	case a == Elsewhere || a == Released:
		return ReleaseAtOwner
	case a == Held || l.state == freed:
		told = TellReleased
	case l.policy.Keeper == Store && l.loss == CancelGone:
	case l.state == repeating && l.policy.Keeper == Store && !l.lease.Surrender.Passed(now):
		told = TellReleased // nobody else can have had it, so the earlier call has released it
	case l.state == repeating:
		told = TellUnanswered
	}
	l.setState(over)
	return told
}

// noteAnswer writes down what calls have done, or may have.
func (l *Lock) noteAnswer(a Answer, repeated bool) {
	switch {
	case a == Released && l.state != freed:
		l.setState(freed)
	case repeated && l.state == releasing:
		l.setState(repeating)
	}
}

// Unanswered records that a release has no answer. repeated says that it may have had its effect,
// elsewhere that the worker that was asked does not own the partition.
func (l *Lock) Unanswered(repeated, elsewhere bool) Decision {
	l.noteAnswer(Gone, repeated)
	if elsewhere {
		return ReleaseAtOwner
	}
	return Release
}

// GiveUp records that the wait for the answer to a release is over. stopped says that no worker is
// asked any more.
func (l *Lock) GiveUp(now lease.Instant, stopped bool) Decision {
	if stopped || l.lease.Surrender.Passed(now) {
		l.setState(over)
		return TellUnknown
	}
	return ReleaseAtOwner
}
