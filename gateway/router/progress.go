package router

import (
	"errors"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/ring"
)

// progress is what is noted of a request on its way to a worker.
type progress struct {
	method, key string
	partition   int
	spans       *requestSpans // nil if the request has none

	sought  time.Time // when a worker was first asked for; zero if none was
	asked   time.Time // when the last attempt at one began
	refused time.Time // when it ended, if it was not settled; zero otherwise
	held    time.Time // when the wait for an owner began; zero if there was none
	tries   int
	worker  string // of the last attempt
	problem string // why there is no worker's answer; "" if there is one
}

// seek has attempts noted that are made from now on.
func (o *progress) seek(attempt routing.Attempt) routing.Attempt {
	if o.sought.IsZero() {
		o.sought = time.Now()
		o.asked = o.sought
	}
	return func(t routing.Target) routing.Outcome {
		o.worker, o.asked, o.refused = t.Name, time.Now(), time.Time{}
		if o.held.IsZero() {
			o.held = t.Held
		}
		o.spans.attempt(o, t.Member)
		o.tries++
		out := attempt(t)
		if out.Verdict != routing.Settled {
			o.refused = time.Now()
		}
		o.spans.attempted(out)
		return out
	}
}

// untaken notes that no worker takes the request, because of err.
func (o *progress) untaken(err error, to *destination) {
	if _, held := errors.AsType[*routing.UnreachableError](err); err == nil || !held && o.tries > 0 && o.refused.IsZero() {
		return
	}
	o.asked = time.Now()
	if o.held.IsZero() && to.hold >= time.Millisecond && !errors.Is(err, routing.ErrHoldFull) && !errors.Is(err, ring.ErrSettings) {
		if o.held = o.refused; o.tries == 0 {
			o.held = o.sought
		}
	}
}
