package send

import (
	"errors"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/ring"
)

// Progress records a request on its way to a worker. The request's goroutine changes it.
type Progress struct {
	Method, Key string
	Partition   int
	Spans       *Spans // nil if the request has none

	Sought  time.Time // when a worker was first looked for; zero if never
	Asked   time.Time // when the last attempt at one began
	refused time.Time // when that attempt ended, if it was not settled; zero otherwise
	held    time.Time // when the wait for an owner began; zero if there was none
	Tries   int
	Worker  string // of the last attempt
	Problem string // why there is no worker's answer; "" if there is one
}

// seek has attempts noted that are made from now on.
func (o *Progress) seek(attempt routing.Attempt) routing.Attempt {
	if o.Sought.IsZero() {
		o.Sought = time.Now()
		o.Asked = o.Sought
	}
	return func(t routing.Target) routing.Outcome {
		o.Worker, o.Asked, o.refused = t.Name, time.Now(), time.Time{}
		if o.held.IsZero() {
			o.held = t.Held
		}
		o.Spans.attempt(o, t.Member)
		o.Tries++
		out := attempt(t)
		if out.Verdict != routing.Settled {
			o.refused = time.Now()
		}
		o.Spans.attempted(out)
		return out
	}
}

// untaken records that no worker takes the request, because of err.
func (o *Progress) untaken(err error, to *Destination) {
	if _, held := errors.AsType[*routing.UnreachableError](err); err == nil || !held && o.Tries > 0 && o.refused.IsZero() {
		return
	}
	o.Asked = time.Now()
	if o.held.IsZero() && to.Hold >= time.Millisecond && !errors.Is(err, routing.ErrHoldFull) && !errors.Is(err, ring.ErrSettings) {
		if o.held = o.refused; o.Tries == 0 {
			o.held = o.Sought
		}
	}
}

// Way is what has carried a request that was answered.
type Way uint8

// The ways that a request can take.
const (
	ByRouter   Way = iota // nothing: the router has answered it
	ByLink                // the link to a worker
	ByHTTP1               // a connection of HTTP/1.1 to a worker
	ByRelay               // the same, for an upgrade
	ByUpstream            // a connection to the route's server for requests without a key

	Ways
)

func (w Way) String() string {
	return [...]string{"router", "link", "http1", "relay", "upstream"}[w]
}

// Class is a class of statuses of answers; 0 for requests whose clients did not wait.
type Class uint8

// Classes is how many there are.
const Classes = 6

// ClassOf returns the class of a status.
func ClassOf(status int) Class {
	if status < 100 || status > 599 || status == StatusClientGone {
		return 0
	}
	return Class(status / 100)
}

func (c Class) String() string {
	return [Classes]string{"499", "1xx", "2xx", "3xx", "4xx", "5xx"}[c]
}
