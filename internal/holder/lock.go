package holder

import (
	"cmp"
	"time"

	"github.com/keyway-go/keyway/internal/lease"
)

// Lock is one lock that this process holds at an owner elsewhere, from its grant to the answer to
// its release. Its state says what its caller may believe, and its course where it is renewed. The
// shell's mutex guards it.
type Lock struct {
	policy *Policy
	state  state
	course course
	loss   Decision // that has ended the caller's work; Wait if none has

	token   int64         // of the caller that works with it
	next    int64         // of the next caller
	turns   int           // tokens that are reserved from next on
	granted time.Duration // on the monotonic clock, before it was asked for

	term    time.Duration // of the lease from each renewal on, at least
	least   time.Duration // shortest term of extensions without an answer, which may still have their effect
	asked   time.Duration // term of the extension under way
	sent    lease.Instant // before the last call was sent that an owner has confirmed
	own     lease.Lease   // of the lock
	lease   lease.Lease   // own, for as long as the owner vouches for it
	written bool          // the store keeps it for own, which outlives the owner's session
}

// Promise is how much longer an owner vouches for its locks without another renewal of its own session.
type Promise struct {
	Cancel    time.Duration // until it would cancel its own executions
	Surrender time.Duration // until these must have ended
}

// Grant is what an owner answers that grants a lock, or extends it.
type Grant struct {
	Promise
	Token int64
	Lease time.Duration // for how long it is held without a renewal
	Next  int64         // token of the first further turn, which those of the others follow; above Token
	Turns int           // tokens that are reserved for further callers
}

// New returns a lock that was granted when asked for by a call sent at sent.
func New(p *Policy, sent lease.Instant, g Grant) Lock {
	l := Lock{policy: p, term: g.Lease, least: Never, asked: Never, token: g.Token, next: g.Next, turns: g.Turns, granted: sent.Mono}
	l.confirm(sent, g.Lease, g.Promise)
	return l
}

// Token returns the fencing token of the caller that works with l.
func (l *Lock) Token() int64 { return l.token }

// HasCaller reports whether the last caller has not ended.
func (l *Lock) HasCaller() bool { return l.state < releasing }

// Left returns for how long l lasts for its caller without another renewal.
func (l *Lock) Left(now lease.Instant) time.Duration {
	if l.state >= lost || l.lease.Cancel.Passed(now) {
		return 0
	}
	return l.lease.Surrender.Left(now)
}

// Ends returns how soon the work with l ends without another renewal; 0 if that time has passed.
func (l *Lock) Ends(now lease.Instant) time.Duration { return l.lease.Cancel.Left(now) }

// Term returns for how long a renewal in a store is to last.
func (l *Lock) Term() time.Duration {
	if l.asked != Never {
		return l.asked
	}
	return l.term
}

// due is the age at which l is renewed.
func (l *Lock) due() time.Duration { return l.policy.due(l.term) }

// Pause returns how often l wants a Tick, in addition to one when it ends.
func (l *Lock) Pause() time.Duration { return l.policy.Pause(l.term) }

// within reports whether l admits work and was confirmed no longer than age ago.
func (l *Lock) within(now lease.Instant, age time.Duration) bool {
	return l.state <= working && l.lease.Admits(now) && now.Mono-l.sent.Mono < age
}

// Sure reports whether l is held at its owner: no renewal has failed.
func (l *Lock) Sure(now lease.Instant) bool { return l.within(now, 2*l.due()) }

// confirm records that the owner has confirmed l for that term when asked by a call sent at sent.
// It never shortens the lease.
func (l *Lock) confirm(sent lease.Instant, term time.Duration, p Promise) {
	if l.policy.Keeper == Store {
		l.term = term
	}
	if own := l.policy.Lease(sent, term); own.Cancel.Mono > l.own.Cancel.Mono {
		l.own, l.written = own, term > l.policy.TTL
	}
	if l.sent, l.lease = sent, l.own; l.policy.Keeper == Worker && (!l.written || p.Surrender == 0) {
		l.lease = l.own.Within(sent, p.Cancel, p.Surrender)
	}
}

// Confirm says what is missing before work with a granted lock may begin. Its lease runs from
// before it was asked for, so after a wait it is renewed first.
func (l *Lock) Confirm(now lease.Instant) Decision {
	switch {
	case l.state != granted:
		return CancelGone
	case l.within(now, l.due()):
		return Begin
	}
	return l.askRenewal()
}

// askRenewal decides whom to askRenewal to renew l, and records that the call is under way.
func (l *Lock) askRenewal() Decision {
	if l.course == away {
		l.setCourse(seeking)
		return Seek
	}
	l.setCourse(renewing)
	return Renew
}

// Give gives a lock that was confirmed to the first of its callers.
func (l *Lock) Give() { l.setState(passing) }

// Begin lets the caller begin. It returns Wait if others may have the lock: the caller of a turn may have been stopped
// since it was given, and the shell then ends it.
func (l *Lock) Begin(now lease.Instant) Decision {
	if l.state != granted && !l.Sure(now) {
		return Wait
	}
	l.setState(working)
	return Begin
}

// Check compares the deadline.
func (l *Lock) Check(now lease.Instant) Decision {
	if !l.held() || l.policy.Persist || !l.lease.Cancel.Passed(now) {
		return Wait
	}
	return l.lose(CancelOverdue)
}

func (l *Lock) lose(d Decision) Decision {
	l.setState(lost)
	l.loss = d
	return d
}

// held reports whether l is a caller's, for as long as its deadline has not passed.
func (l *Lock) held() bool { return l.state == working || l.state == passing }

// isShort reports whether l ends before its next regular renewal. Its owner's session was then not confirmed for long, and
// every renewal tells whether it is now.
func (l *Lock) isShort(now lease.Instant) bool {
	return l.policy.Keeper == Worker && l.lease.Cancel.Left(now) < l.due()
}

// Tick says what is due: the end of the work, or a renewal.
func (l *Lock) Tick(now lease.Instant) Decision {
	switch d := l.Check(now); {
	case d != Wait, !l.held(), now.Mono-l.sent.Mono < l.due() && !l.isShort(now):
		return d
	case l.course == known, l.course == away:
		return l.askRenewal()
	}
	return Wait
}

// Renewed takes the answer to a renewal that was sent at sent. After Retake, its call lasts until
// the answer to that.
func (l *Lock) Renewed(now, sent lease.Instant, a Answer, p Promise) Decision {
	if a == Gone && l.state == working && l.policy.Persist {
		l.turns = 0 // others may have had the lock, with later tokens
		return Retake
	}
	if a == Elsewhere {
		l.setCourse(away)
	} else {
		l.setCourse(known)
	}
	term := l.term
	if l.policy.Keeper == Store {
		term, l.asked = l.Term(), Never
	}
	return l.takeAnswer(now, sent, a, term, p)
}

// takeAnswer takes what an owner answers. An answer that comes after the deadline may be that of another owner, after others
// had the key.
func (l *Lock) takeAnswer(now, sent lease.Instant, a Answer, term time.Duration, p Promise) Decision {
	if d := l.Check(now); d != Wait || l.state > working {
		return d
	}
	switch a {
	case Held:
		l.confirm(sent, term, p)
	case Gone, Taken:
		return l.Lose()
	}
	return Wait
}

// Lose records that the owner does not hold l.
func (l *Lock) Lose() Decision {
	if l.state > working {
		return Wait
	}
	return l.lose(CancelGone)
}

// Retaken records that l was taken again by a call sent at sent. It takes the time and the further
// tokens of that grant in place of the former ones. Its caller keeps its token.
func (l *Lock) Retaken(sent lease.Instant, g Grant) {
	if l.course == renewing {
		l.setCourse(known)
	}
	if l.asked = Never; l.state > working {
		return
	}
	l.next, l.turns, l.own = g.Next, g.Turns, lease.Lease{}
	l.confirm(sent, g.Lease, g.Promise)
}

// Failed records that a renewal has no answer. elsewhere says that the worker that was asked does
// not own the partition.
func (l *Lock) Failed(elsewhere bool) {
	if l.policy.Keeper == Store {
		l.asked = Never
	}
	if elsewhere || l.course == seeking {
		l.setCourse(away)
	} else {
		l.setCourse(known)
	}
}

// Extend records that the owner is asked for another term from now on, and returns it; 0 asks for
// the present term. Only the owner knows which term a renewal gives meanwhile, or later if the call
// has no answer, so the shortest possible term counts. Tokens reserved for further callers lapse,
// since those callers have not asked for this term. A store is told the term by each call, one call
// at a time: for it an Extend is a renewal.
func (l *Lock) Extend(term time.Duration) time.Duration {
	term = cmp.Or(term, l.term)
	if l.policy.Keeper == Store {
		if l.asked = term; term != l.term {
			l.turns = 0
		}
		l.setCourse(renewing)
		return term
	}
	l.turns, l.asked = 0, term
	l.term = min(l.term, l.least, l.asked)
	return l.asked
}

// Extended takes the owner's answer to an extension whose last call was sent at sent. repeated says that an earlier call
// may have its effect later.
func (l *Lock) Extended(now, sent lease.Instant, g Grant, repeated bool) Decision {
	switch l.course {
	case away:
		l.setCourse(known)
	case seeking:
		l.setCourse(renewing)
	}
	d := l.takeAnswer(now, sent, Held, g.Lease, g.Promise)
	if !repeated {
		l.asked = Never
	}
	l.Unextended()
	l.term = min(g.Lease, l.least)
	return d
}

// Unextended records that the call of an extension has ended, without an answer unless Extended was
// called.
func (l *Lock) Unextended() { l.least, l.asked = min(l.least, l.asked), Never }

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
