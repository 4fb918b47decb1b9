package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// kind is a kind of event.
type kind uint8

const (
	join         kind = iota // a worker starts
	leave                    // SIGTERM
	kill                     // kill -9
	restart                  // kill -9, and a start under the same name
	pause                    // SIGSTOP, and SIGCONT after pauseTime
	redisRestart             // kill -9 and start with what the append-only file kept
	redisLoss                // kill -9 and start without data
	eventKinds
)

func (k kind) String() string {
	return kindNames[k]
}

var kindNames = [...]string{"join", "SIGTERM", "kill", "kill-restart", "SIGSTOP", "redis-restart", "redis-data-loss"}

// takesWorker: others have to take a worker's partitions over.
func (k kind) takesWorker() bool { return k == kill || k == restart || k == pause }

// endsClaims: for one TTL nothing is claimed.
func (k kind) endsClaims() bool { return k == redisRestart || k == redisLoss }

const (
	startWorkers = 3
	maxWorkers   = 5
	minWorkers   = 2
	pauseTime    = 15 * time.Second
	restartDelay = time.Second // between kill and start, at most
)

// act is an event of the plan.
type act struct {
	At     time.Duration
	Kind   kind
	Worker string
}

func (a act) String() string {
	if a.Worker == "" {
		return a.Kind.String()
	}
	return a.Kind.String() + " " + a.Worker
}

// planned writes a plan.
func planned(acts []act) string {
	var list []string
	for _, a := range acts {
		list = append(list, fmt.Sprintf("%.1fs %s", a.At.Seconds(), a))
	}
	return strings.Join(list, ", ")
}

// conditions are what a plan has to fit.
type conditions struct {
	Time time.Duration // of the campaign
	Calm time.Duration // before the first event
	TTL  time.Duration // of sessions
	Hold time.Duration // of requests at the router
}

// slack is how much more than a TTL a takeover or a quarantine may take: workers
// have to notice, and to claim.
const slack = 1500 * time.Millisecond

// gap returns how long after an event another one may come at the earliest,
// so that a request that the router holds is answered in time: a takeover
// takes a TTL, one in a quarantine two.
func (c conditions) gap(before, after kind) time.Duration {
	const short = time.Second
	tough := func(k kind) bool { return k.takesWorker() || k.endsClaims() }
	switch {
	case !tough(before) || !tough(after):
		return short
	case before.endsClaims() && after.endsClaims():
		return short
	case before == pause && after.endsClaims(): // the router does not hold what it has sent to the paused worker
		return short
	case 2*c.TTL+2*slack < c.Hold && before.endsClaims() != after.endsClaims():
		return short
	}
	return c.TTL + slack
}

// plan makes the timeline: the number of workers goes from 3 to 5 to 2, with
// each kind of event at least once if the time allows, and again from the
// start while there is time. A plan is a function of the seed and the
// conditions.
func plan(rng *rand.Rand, c conditions) []act {
	if c.Time < 45*time.Second {
		return planShort(rng, c)
	}
	p := &planner{rng: rng, c: c, workers: firstWorkers()}
	for round := 0; ; round++ {
		up := slices.Repeat([]kind{join}, maxWorkers-len(p.workers))
		var acts []act
		for try := 0; acts == nil && try < 100; try++ {
			middle := []kind{pause, kill, restart, redisRestart, redisLoss, leave}
			rng.Shuffle(len(middle), func(i, j int) { middle[i], middle[j] = middle[j], middle[i] })
			acts = p.fit(slices.Concat(up, middle, []kind{leave}))
		}
		if acts == nil {
			return p.acts
		}
		p.acts = acts
		p.workers = after(acts)
	}
}

// planShort chooses a subset in which the long pause is missing.
func planShort(rng *rand.Rand, c conditions) []act {
	p := &planner{rng: rng, c: c, workers: firstWorkers()}
	middle := []kind{[]kind{kill, restart}[rng.IntN(2)], redisRestart, redisLoss, leave}
	for try := 0; ; try++ {
		rng.Shuffle(len(middle), func(i, j int) { middle[i], middle[j] = middle[j], middle[i] })
		if acts := p.fit(append([]kind{join}, middle...)); acts != nil {
			return stretch(acts, c)
		}
		if try%100 == 99 {
			middle = middle[:len(middle)-1]
		}
	}
}

// stretch lets a plan that leaves much of the time fill more of it.
func stretch(acts []act, c conditions) []act {
	last := acts[len(acts)-1].At - c.Calm
	factor := max(1, float64(c.Time-c.Calm-c.TTL)/float64(last))
	for i := range acts {
		acts[i].At = c.Calm + time.Duration(factor*float64(acts[i].At-c.Calm)).Round(time.Millisecond)
	}
	return acts
}

// planner appends to a plan.
type planner struct {
	rng     *rand.Rand
	c       conditions
	acts    []act
	workers []string // that run at the end of acts
}

func firstWorkers() []string {
	var names []string
	for i := range startWorkers {
		names = append(names, fmt.Sprintf("w%d", i+1))
	}
	return names
}

// after returns the workers that run after acts.
func after(acts []act) []string {
	names := firstWorkers()
	for _, a := range acts {
		switch a.Kind {
		case join:
			names = append(names, a.Worker)
		case leave, kill:
			names = slices.DeleteFunc(names, func(n string) bool { return n == a.Worker })
		}
	}
	return names
}

// fit returns the plan with kinds appended, or nil if they take too long.
func (p *planner) fit(kinds []kind) []act {
	acts := slices.Clone(p.acts)
	joined := startWorkers
	for _, a := range acts {
		if a.Kind == join {
			joined++
		}
	}
	for _, k := range kinds {
		at := p.c.Calm
		for _, before := range acts {
			at = max(at, before.At+p.c.gap(before.Kind, k))
		}
		at += time.Duration(p.rng.Int64N(int64(time.Second)))
		a := act{At: at.Round(time.Millisecond), Kind: k}
		switch {
		case k == join:
			joined++
			a.Worker = fmt.Sprintf("w%d", joined)
		case !k.endsClaims():
			free := p.free(acts, at)
			if len(free) == 0 || k != restart && k != pause && len(after(acts)) <= minWorkers {
				return nil
			}
			a.Worker = free[p.rng.IntN(len(free))]
		}
		acts = append(acts, a)
		if end := p.end(a); end > p.c.Time {
			return nil
		}
	}
	return acts
}

// free returns the workers that are not paused and have run for a while.
func (p *planner) free(acts []act, at time.Duration) []string {
	free := after(acts)
	for _, a := range acts {
		busy := a.Kind == pause && at < a.At+pauseTime+p.c.TTL || (a.Kind == join || a.Kind == restart) && at < a.At+2*time.Second
		if busy {
			free = slices.DeleteFunc(free, func(n string) bool { return n == a.Worker })
		}
	}
	return free
}

// end returns when the campaign may end after an event.
func (p *planner) end(a act) time.Duration {
	if a.Kind == pause {
		return a.At + pauseTime + time.Second
	}
	return a.At + time.Second
}
