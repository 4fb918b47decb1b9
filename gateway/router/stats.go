package router

import "sync/atomic"

// Stats counts what a router has done since its start.
type Stats struct {
	Requests    int64 // all that came
	BadRequests int64 // answered 400 or 408: no key, a bad one, or a body that did not arrive
	Held        int64 // waited for an owner
	Holding     int64 // wait now
	BodyBytes   int64 // bytes of bodies kept for another attempt now, as Config.ReplayBytes counts them
	Refusals    int64 // workers' answers that they do not own the key
	Hops        int64 // hints followed
	Unreachable int64 // answered 503: no owner within the time
	HoldFull    int64 // answered 503: too many waited already
	Broken      int64 // answered 502: the connection broke after the request was sent
	ClientGone  int64 // clients that left before the answer began
}

type counters struct {
	requests, badRequests, unreachable, holdFull, broken, clientGone atomic.Int64
}

// Stats returns the present counts.
func (rt *Router) Stats() Stats {
	c := &rt.counters
	return Stats{
		Requests:    c.requests.Load(),
		BadRequests: c.badRequests.Load(),
		Held:        rt.routes.Held.Load(),
		Holding:     rt.routes.Holding.Load(),
		BodyBytes:   rt.budget.inUse(),
		Refusals:    rt.routes.Refusals.Load(),
		Hops:        rt.routes.Hops.Load(),
		Unreachable: c.unreachable.Load(),
		HoldFull:    c.holdFull.Load(),
		Broken:      c.broken.Load(),
		ClientGone:  c.clientGone.Load(),
	}
}
