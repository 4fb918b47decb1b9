package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// grantTime is how long a key that is free, and has an owner, may be kept from a waiting caller, unless -grant says
// otherwise; promptly is how long it takes at most where there is time.
const (
	grantTime = time.Second
	promptly  = 100 * time.Millisecond
)

// conclude finds violations. A lock may be lost only with its owner. A call may fail, or wait for a free key, only while
// the key has no owner: within one of the outages, or a TTL later. All of that may happen while the machine was too
// busy. A lock may be lost, and with it the call for the next of several keys, while free keys came to their waiters late.
// It may remain unknown whether a lock is unlocked only at those times, or if its client is in another language: the
// routers of these are killed. A lock that the store keeps may be lost, or another caller's before its end, only with what
// the store has lost, in one of forgotten.
func (j *lockJudge) conclude(outages, forgotten, busy []outage, ttl time.Duration) *lockReport {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := &lockReport{violations: slices.Clone(j.findings), taken: len(j.ended), failed: len(j.failed),
		deaths: j.deaths, orphans: j.orphans, vanished: j.vanished, by: make(map[string]int)}
	within := func(all []outage, begin, end time.Duration) bool {
		return slices.ContainsFunc(all, func(o outage) bool { return o.touches(begin, end, ttl) })
	}
	// A free key reaches its waiter in about the time that a renewal takes. Each fifth of the TTL an owner renews its session
	// and a caller its lock, which is lost after four fifths. If both renewals take a fifth, nothing is left.
	crawls := func(c *call) bool {
		lease := min(c.Lease, ttl)
		return slices.ContainsFunc(j.idle, func(i idle) bool {
			return i.after == unlocking && i.end-i.begin > lease/5 && i.end > c.end-lease && i.begin < c.end
		})
	}
	violated := func(at time.Duration, format string, args ...any) {
		r.violations = append(r.violations, fmt.Sprintf("%.3fs "+format, append([]any{at.Seconds()}, args...)...))
	}
	forgot := func(before, c *call) bool {
		return before.left && before.Lease > ttl && slices.ContainsFunc(forgotten, func(o outage) bool { return o.touches(before.begin, c.begin, 0) })
	}
	for _, k := range j.keys {
		k.compare(forgot, violated)
	}
	for _, c := range j.failed {
		if !within(outages, c.begin, c.end) && !within(busy, c.begin, c.end) && !(c.Many && crawls(c)) {
			violated(c.end, "lock-%d, asked for since %.3fs (%s): %s", c.Key, c.begin.Seconds(), c.Life, c.Err)
		}
	}
	for _, c := range j.ended {
		why := outages
		if c.Lease > ttl {
			r.long++
			why = forgotten
		}
		if c.Read {
			r.read++
		}
		if c.Many {
			r.many++
		}
		r.by[c.Life]++
		if c.Err != "" && !c.Lost {
			r.unknown++
			if !within(outages, c.end, c.told) && !within(busy, c.end, c.told) && !crawls(c) && !isLanguage(c.Life) {
				violated(c.told, "nobody knows whether lock-%d is unlocked, asked for at %.3fs (%s): %s", c.Key, c.end.Seconds(), c.Life, c.Err)
			}
		}
		switch {
		case !c.Lost:
		case within(why, c.end-ttl, c.end):
			r.lost++
		case within(busy, c.end-ttl, c.end), crawls(c):
			r.starved++
		default:
			violated(c.end, "lock-%d with token %d and a lease of %v, held since %.3fs (%s), was lost though nothing that kept it was: %s", c.Key, c.Token, c.Lease, c.begin.Seconds(), c.Life, cmp.Or(c.Err, "known before it was unlocked"))
		}
	}
	without := slices.Concat(outages, busy)
	for _, i := range j.idle {
		left := i.end - i.begin
		for _, o := range without {
			left -= max(0, min(i.end, o.end+ttl+i.extra)-max(i.begin, o.begin))
		}
		if left > j.grant {
			violated(i.end, "lock-%d was free and waited for since %.3fs", i.key, i.begin.Seconds())
		}
		switch took := i.end - i.free; {
		case slices.ContainsFunc(without, func(o outage) bool { return o.touches(i.free, i.end, 0) }):
		case i.after == changing:
		case i.after == unlocking && (i.begin == i.free || took <= promptly):
			if r.grants = append(r.grants, took); took > promptly {
				r.late++
			}
		default:
			r.left = append(r.left, max(0, i.end-i.begin))
		}
	}
	if r.taken == 0 {
		r.violations = append(r.violations, "nothing was locked")
	}
	slices.Sort(r.grants)
	slices.Sort(r.left)
	return r
}

// compare finds two holders at once, and tokens that do not rise. A caller may have lost a lock before the judge heard of
// it, so what it has not said to have since does not count. Nor does a lock whose caller has left it, if the store may have
// forgotten it before another caller had it.
func (k *lockKey) compare(forgot func(before, c *call) bool, violated func(at time.Duration, format string, args ...any)) {
	var holders []*call
	token, shared := int64(0), false // shared: for reading
	for _, c := range k.had {
		holders = slices.DeleteFunc(holders, func(before *call) bool { return !before.outlasts(c) || forgot(before, c) })
		for _, before := range holders {
			if c.lasted() && !(c.Read && before.Read) {
				violated(c.begin, "lock-%d is held with token %d, and with %d", k.number, before.Token, c.Token)
			}
		}
		if c.lasted() && (c.Token < token || c.Token == token && !(c.Read && shared)) {
			violated(c.begin, "lock-%d: token %d after %d", k.number, c.Token, token)
		}
		if c.Token >= token {
			token, shared = c.Token, c.Read
		}
		holders = append(holders, c)
	}
}

// lockReport is what became of all locks.
type lockReport struct {
	violations                []string
	taken, long, read, many   int            // all; those with a long lease, for reading, taken along with others
	lost, starved             int            // with their owners, or with what the store had; while the machine was too busy
	unknown, failed           int            // nobody knows whether they were unlocked; calls
	deaths, orphans, vanished int            // of client processes; locks and waits of theirs
	by                        map[string]int // all, by the life of their callers
	languages                 []string       // how many locks the client in each has taken
	kills                     int            // of these clients' routers

	grants []time.Duration // from an unlock to the next holder, where keys had owners and the machine time; sorted
	late   int             // of these, longer than promptly
	left   []time.Duration // from when a lease was over that nobody had ended to the next holder; sorted
}

func (r *lockReport) print(w io.Writer) {
	fmt.Fprintf(w, "locks\t%d taken, of them %d with a long lease, %d for reading and %d along with others; %d lost with their owner, %d on a machine that was too busy; %d of which nobody knows whether they were unlocked, %d calls failed\n",
		r.taken, r.long, r.read, r.many, r.lost, r.starved, r.unknown, r.failed)
	fmt.Fprintf(w, "from an unlock to the next holder\tp50 %v, p99 %v, longest %v; %d of %d took more than %v\n",
		short(quantile(r.grants, 0.5)), short(quantile(r.grants, 0.99)), short(quantile(r.grants, 1)), r.late, len(r.grants), promptly)
	fmt.Fprintf(w, "clients killed\t%d processes, with %d locks and %d waits; from the end of a lease that nobody had ended to the next holder: %d times, longest %v\n",
		r.deaths, r.orphans, r.vanished, len(r.left), short(quantile(r.left, 1)))
	if len(r.languages) > 0 {
		fmt.Fprintf(w, "locks of clients in other languages\t%s; their routers were killed %d times\n", strings.Join(r.languages, ", "), r.kills)
	}
}

func short(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

// quantile of durations in order.
func quantile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(p*float64(len(sorted))))]
}
