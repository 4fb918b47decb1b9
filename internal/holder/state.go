package holder

import "fmt"

// state says whether a caller works with a lock. After the last caller it says what is known of the release.
type state uint8

// The states of a lock.
const (
	granted   state = iota // nobody works with it; its deadline may have passed while its key was waited for
	passing                // it is a caller's that has not begun to work
	working                // its caller works
	lost                   // nobody vouches for it: its caller is to end
	closed                 // the client was closed: its caller is to end, and no owner is told of that
	releasing              // its caller has ended; no call can have released it yet
	repeating              // a call that has no answer may have released it
	freed                  // a call has released it, which the store may not know yet
	over                   // the end
	states
)

// course says where a lock is renewed.
type course uint8

// The courses of a lock.
const (
	known    course = iota // at the worker that has confirmed it last
	renewing               // a call to that worker is under way
	away                   // at the owner of its partition, which is another worker
	seeking                // a call to that owner is under way
	courses
)

// stateNext and courseNext are the allowed transitions. setState and setCourse, which alone write the values, check them.
var (
	stateNext = [states][states]bool{
		granted:   {passing: true, working: true, lost: true, closed: true, releasing: true},
		passing:   {passing: true, working: true, lost: true, closed: true, releasing: true},
		working:   {passing: true, lost: true, closed: true, releasing: true, over: true},
		lost:      {closed: true, releasing: true},
		closed:    {releasing: true, over: true},
		releasing: {repeating: true, freed: true, over: true},
		repeating: {freed: true, over: true},
		freed:     {over: true},
	}
	courseNext = [courses][courses]bool{
		known:    {renewing: true},
		renewing: {known: true, away: true},
		away:     {seeking: true, known: true},
		seeking:  {known: true, away: true, renewing: true},
	}
)

var (
	stateNames  = [states]string{"granted", "passing", "working", "lost", "closed", "releasing", "repeating", "freed", "over"}
	courseNames = [courses]string{"known", "renewing", "away", "seeking"}
)

func (s state) String() string { return stateNames[s] }

func (c course) String() string { return courseNames[c] }

func (l *Lock) setState(to state) {
	if !stateNext[l.state][to] {
		panic(fmt.Sprintf("holder: a lock goes from %v to %v", l.state, to))
	}
	l.state = to
}

func (l *Lock) setCourse(to course) {
	if !courseNext[l.course][to] {
		panic(fmt.Sprintf("holder: a lock's course goes from %v to %v", l.course, to))
	}
	l.course = to
}

// Answer is what a worker or store says of a lock when it is asked to renew or release it. Workers send these values, except
// Taken, over the link.
type Answer uint8

// The answers.
const (
	Gone      Answer = iota // it does not hold the lock
	Held                    // it holds the lock and renews it; or it has released what was held until then
	Elsewhere               // it does not serve the lock's partition
	Released                // it has released the lock, and does not know whether the store has taken that
	Taken                   // another client has the lock
)

// Decision is what the shell has to do.
type Decision uint8

// The decisions.
const (
	Wait           Decision = iota // nothing
	Begin                          // let the caller begin
	Renew                          // ask the worker that has confirmed the lock last to renew it
	Seek                           // ask the owner of its partition to renew it
	CancelOverdue                  // end the caller's work: no owner has confirmed the lock in time
	CancelGone                     // end the caller's work: the owner does not hold the lock any more
	Pass                           // give the lock, with Token, to the next caller that waits for it
	Release                        // ask the worker that has confirmed the lock last to release it
	ReleaseAtOwner                 // ask the owner of its partition to release it
	Retake                         // take the lock again, which nobody has
	TellReleased                   // tell the caller that the lock was its own until it was released
	TellNotOwner                   // tell the caller that the lock was not its own any more
	TellUnknown                    // tell the caller that no answer says what has become of the lock
	TellUnanswered                 // the same, since an earlier call may have released what the owner does not hold now
)
