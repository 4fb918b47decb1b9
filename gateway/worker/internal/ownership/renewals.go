package ownership

import (
	"fmt"
	"time"

	"github.com/keyway-go/keyway/internal/handoff"
)

// renewals accounts for the time since the last confirmation of a session, so that a lost session
// can be explained. The shell's goroutine owns it. Times are since the worker's start.
type renewals struct {
	sent    time.Duration // before the call was sent that the store has confirmed last
	ttl     time.Duration // of the session; 0 while it is not confirmed
	id      uint64        // of the call under way; 0 for none
	began   time.Duration // when it was sent
	calls   int           // that failed since
	inStore time.Duration // that they took, each no longer than a call may
	err     error         // of the last of them
	last    string        // what blame has returned last
}

func (r *renewals) asked(now time.Duration, id uint64) { r.id, r.began = id, now }

// answered records the answer to a renewal. A call may take as long as timeout.
func (r *renewals) answered(now time.Duration, reply handoff.Reply, timeout time.Duration) {
	if r.id == 0 || reply.ID != r.id {
		return
	}
	r.id = 0
	if reply.Err != nil {
		r.calls++
		r.inStore += min(now-r.began, timeout)
		r.err = reply.Err
	}
}

// confirmed records that a lease has begun. The zero lease, one that is over, changes nothing.
func (r *renewals) confirmed(lease handoff.Lease, ttl time.Duration) {
	if lease == (handoff.Lease{}) {
		return
	}
	*r = renewals{sent: lease.Sent(ttl).Mono, ttl: ttl, id: r.id, began: r.began}
}

// blame says why the session is not confirmed: whether the store did not do that, or
// this process did not get to ask it.
func (r *renewals) blame(now time.Duration) string {
	if r.ttl == 0 {
		return "it was never confirmed"
	}
	overdue := now - r.sent - r.ttl/5 // when it should have been renewed
	store := r.inStore + time.Duration(r.calls)*r.ttl/50
	if r.id != 0 {
		store += min(now-r.began, r.ttl/5)
	}
	late := overdue - store
	switch {
	case late > overdue/2:
		r.last = fmt.Sprintf("this process did not run for %v of the %v since it last asked in time: it had no CPU, or was stopped", late.Round(time.Millisecond), (now - r.sent).Round(time.Millisecond))
	case r.err != nil:
		r.last = fmt.Sprintf("the store did not confirm it for %v, in %d calls: %v", (now - r.sent).Round(time.Millisecond), r.calls, r.err)
	default:
		r.last = fmt.Sprintf("the store did not answer for %v", (now - r.sent).Round(time.Millisecond))
	}
	return r.last
}
