package router

import (
	"github.com/keyway-go/keyway/gateway/internal/problem"
	"github.com/keyway-go/keyway/gateway/internal/spool"
)

// Stats are counts of requests since the router's start, and of those under way.
type Stats struct {
	Requests    int64 // all that came
	BadRequests int64 // no key or a bad one, no route, a body that did not arrive, or a head or body that is too large
	Held        int64 // waited for an owner
	Holding     int64 // wait now
	BodyBytes   int64 // bytes of bodies in memory now, as Limits.ReplayBytes counts them
	BodyFiles   int64 // bytes of bodies in temporary files now
	Refusals    int64 // workers' answers that they do not own the key
	Hops        int64 // hints followed
	Unreachable int64 // answered 503: no owner within the time, or other routes than another router's
	HoldFull    int64 // answered 503: too many waited already
	Broken      int64 // answered 502: the connection broke after the request was sent
	ClientGone  int64 // clients that left before the answer began
}

// Stats returns the present counts.
func (rt *Router) Stats() Stats {
	c := &rt.counters
	return Stats{
		Requests:    c.requests.Load(),
		BadRequests: c.sum(problem.NoKey, problem.BadKey, problem.NoRoute, problem.BodyTooSlow, problem.BodyBroken, problem.BodyTooLarge, problem.HeadTooLarge),
		Held:        rt.workers.Routes.Held.Load(),
		Holding:     rt.workers.Routes.Holding.Load(),
		BodyBytes:   rt.budget.InUse(spool.Memory),
		BodyFiles:   rt.budget.InUse(spool.Disk),
		Refusals:    rt.workers.Routes.Refusals.Load(),
		Hops:        rt.workers.Routes.Hops.Load(),
		Unreachable: c.sum(problem.NoOwner, problem.StandsAside, problem.NoUpstream),
		HoldFull:    c.sum(problem.HoldFull, problem.BodiesFull),
		Broken:      c.sum(problem.MayHaveRun),
		ClientGone:  c.clientGone.Load(),
	}
}

// sum returns how many answers of these kinds there were.
func (c *counters) sum(kinds ...problem.Kind) (n int64) {
	for _, k := range kinds {
		n += c.problems[k].Load()
	}
	return n
}
