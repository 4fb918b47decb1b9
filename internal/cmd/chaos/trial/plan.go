package trial

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"
)

// NoAnswer is the status of a request whose connection broke.
const NoAnswer = 0

// Kind is a kind of fault: what it breaks, how, and what a request may suffer.
// From its begin until a while after it has healed requests may fail with the
// statuses that stand here, and with no others; several faults at a time allow
// what each of them does.
type Kind struct {
	Name   string
	Target string  // letters of the hosts that it may hit: one of them; "" for none in particular
	Lasts  [2]int  // tenths of the session TTL, at least and at most
	Fails  []int   // statuses; none: not a request may fail
	Ran    bool    // only requests that ran at the program, or never ran and were answered when it broke
	Door   bool    // clients are connected to the program: also what was answered when it broke and ran elsewhere
	Settle float64 // TTLs from its healing on, in which requests may still fail
	Beside bool    // it may come beside others
	Alone  bool    // nothing comes beside it: what a planned move promises is seen best so
	Cuts   bool    // it silences connections, in a direction
	Takes  bool    // others have to take a worker's partitions over
	Ends   bool    // it ends claims: for one TTL nothing is claimed
	Late   bool    // the program may send what it had admitted when it goes on; the token refuses it
	Redis  bool    // only over Redis
	Spared bool    // over etcd not a request may fail
	Beyond bool    // it lies outside of the conditions of exclusion (S1); tokens must still rise (S2)
	Play   func(ctx context.Context, f *Fault) error
}

// What requests fail with.
var (
	Broken  = []int{http.StatusBadGateway}
	Resumed = []int{http.StatusBadGateway, http.StatusConflict}
)

// Starved is what happens to all of them when the machine itself is too busy. It
// is in no plan.
var Starved = &Kind{Name: "starved-machine", Fails: []int{NoAnswer, http.StatusBadGateway, http.StatusServiceUnavailable}, Settle: 3}

// Slack is how much longer than what a promise says it may take until all of
// its requests are answered: workers have to notice, and to claim.
const Slack = 1500 * time.Millisecond

// over returns how long after a fault has healed requests may fail. Connections
// that a cut has silenced are tried again by TCP after up to as long as it lasted.
func (k *Kind) over(lasted, ttl time.Duration) time.Duration {
	if len(k.Fails) == 0 {
		return 0
	}
	after := time.Duration(k.Settle * float64(ttl))
	if k.Cuts {
		after = max(after, lasted)
	}
	return after + Slack
}

// Fault is one fault of a plan, and what became of it.
type Fault struct {
	Kind   *Kind
	Host   string        // that it hits; "" for what the kind finds at the time
	Delay  time.Duration // after the begin of its episode
	Lasts  time.Duration
	Way    Direction // of a cut
	Amount float64   // from 0 to 1: how bad it is

	Process    string        // that was hit
	Begin, End time.Duration // by the observer's clock; End: healed
	Broke      time.Duration // when a killed process was dead
	Note       string
	Err        error
}

// Direction says which frames a cut loses.
type Direction uint8

// The directions.
const (
	BothWays Direction = iota
	Outward            // from the host
	Inward             // to the host
)

func (d Direction) String() string { return [...]string{"both ways", "outward", "inward"}[d] }

func (f *Fault) String() string {
	text := strings.TrimSpace(f.Kind.Name + " " + f.Host)
	if f.Kind.Cuts {
		text += " " + f.Way.String()
	}
	if f.Lasts > 0 {
		text += fmt.Sprintf(" %.1fs", f.Lasts.Seconds())
	}
	return text
}

// Hold lets a fault last. It ends early with ctx.
func (f *Fault) Hold(ctx context.Context) { Sleep(ctx, f.Lasts) }

// until returns when requests may no longer fail for a fault.
func (f *Fault) until(ttl time.Duration) time.Duration {
	return f.End + f.Kind.over(f.End-f.Begin, ttl)
}

// touches reports whether a request was under way while a fault had an effect.
func (f *Fault) touches(q *Request, ttl time.Duration) bool {
	return q.Recv >= f.Begin && q.Send <= f.until(ttl)
}

// noticed is how long routers may take to notice that a process is dead, and to answer what was there.
const noticed = 500 * time.Millisecond

// allows reports whether a request may have failed for a fault. It ran at that process, or at none.
func (f *Fault) allows(q *Request, ran string, ttl time.Duration) bool {
	switch {
	case !slices.Contains(f.Kind.Fails, q.Status) || !f.touches(q, ttl):
		return false
	case !f.Kind.Ran || ran == f.Process:
		return true
	}
	return f.Broke > 0 && (ran == "" || f.Kind.Door && q.Send <= f.Broke) && q.Recv <= f.Broke+noticed
}

// lateGrace is for a worker that was paused to notice that it was.
const lateGrace = 2 * time.Second

// Excuses reports whether a finding lies outside of what is promised. A worker may be stopped
// between its last check of a request and its sending. It sends the request when it goes on, and the
// token refuses it. That excuses no request that clients sent later; sent says when, by their numbers. A worker whose clock
// runs beyond the margin may overlap with others: its tokens are lower.
func (f *Fault) Excuses(finding Finding, sent map[int64]time.Duration, ttl time.Duration) bool {
	late := finding.Late
	if late == nil {
		return false
	}
	refused := late.Outcome == Fenced
	switch {
	case f.Kind.Late && refused && (finding.Kind == Overlap || finding.Kind == Regression):
		at, known := sent[late.Request]
		return late.Worker == f.Process && known && at <= f.Begin && finding.At >= f.End && finding.At <= f.End+lateGrace
	case f.Kind.Beyond && finding.At >= f.Begin && finding.At <= f.until(ttl):
		return finding.Kind == Overlap || finding.Kind == LostUpdate || finding.Kind == Regression && refused && late.Worker == f.Process
	}
	return false
}

// SessionTTL returns the session TTL for a trial of that length: it has to be several of them long.
func SessionTTL(length time.Duration) time.Duration {
	switch {
	case length < 45*time.Second:
		return 4 * time.Second
	case length < 3*time.Minute:
		return 5 * time.Second
	}
	return 10 * time.Second
}

// Plan says which faults come when. Its episodes are a function of its fields.
type Plan struct {
	Time     time.Duration
	Seed     int64
	TTL      time.Duration // of sessions
	Quiet    time.Duration // after an episode has settled: not a request may fail
	Together int           // faults at a time, at most
	Hosts    []string
	Kinds    []*Kind
}

// Episode is one fault or several at a time, and the quiet time after them.
type Episode []*Fault

func (e Episode) String() string {
	var list []string
	for _, f := range e {
		list = append(list, f.String())
	}
	return strings.Join(list, " + ")
}

// takes returns about how long an episode takes.
func (p Plan) takes(e Episode) (d time.Duration) {
	for _, f := range e {
		t := f.Delay + f.Lasts + f.Kind.over(f.Lasts, p.TTL)
		if f.Lasts == 0 {
			t += p.TTL // it ends by itself
		}
		d = max(d, t)
	}
	return d + p.Quiet + p.TTL/2
}

// Episodes makes the episodes that fit into the time, and at least one if any fits: each kind comes once before any
// comes again.
func (p Plan) Episodes() (all []Episode) {
	rng := rand.New(rand.NewPCG(uint64(p.Seed), 1))
	var deck []*Kind
	for left := p.Time; ; {
		if len(deck) == 0 {
			deck = slices.Clone(p.Kinds)
			rng.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		}
		e := Episode{p.fault(rng, deck[0], nil)}
		deck = deck[1:]
		for len(e) < p.Together {
			i := slices.IndexFunc(deck, func(k *Kind) bool { return k.Beside && (k.Target == "" || len(p.free(k, e)) > 0) })
			if i < 0 || e[0].Kind.Alone || rng.IntN(2) > 0 {
				break
			}
			f := p.fault(rng, deck[i], e)
			f.Delay = time.Duration(rng.Int64N(int64(p.TTL / 5)))
			e, deck = append(e, f), slices.Delete(deck, i, i+1)
		}
		takes := p.takes(e)
		switch {
		case takes <= left:
			left -= takes
			all = append(all, e)
		case len(all) > 0 || len(deck) == 0:
			return all
		}
	}
}

// free returns the hosts that a kind may hit beside faults.
func (p Plan) free(k *Kind, beside Episode) (hosts []string) {
	for _, h := range p.Hosts {
		if strings.Contains(k.Target, h[:1]) && !slices.ContainsFunc(beside, func(f *Fault) bool { return f.Host == h }) {
			hosts = append(hosts, h)
		}
	}
	return hosts
}

func (p Plan) fault(rng *rand.Rand, k *Kind, beside Episode) *Fault {
	f := &Fault{Kind: k, Way: Direction(rng.IntN(3)), Amount: rng.Float64()}
	if k.Lasts[1] > 0 {
		tenths := float64(k.Lasts[0]) + rng.Float64()*float64(k.Lasts[1]-k.Lasts[0])
		f.Lasts = time.Duration(tenths * float64(p.TTL) / 10).Round(100 * time.Millisecond)
	}
	if hosts := p.free(k, beside); len(hosts) > 0 {
		f.Host = hosts[rng.IntN(len(hosts))]
	}
	return f
}
