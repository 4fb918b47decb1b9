//go:build linux

package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/keyway-go/keyway/loadtest/internal/proc"
	"github.com/keyway-go/keyway/loadtest/internal/rawio"
)

// Config says what load to make.
type Config struct {
	Addr     string // ip:port
	Clients  int    // connections
	Rate     float64
	Mix      Mix
	WarmUp   time.Duration
	Time     time.Duration // that is measured
	Timeout  time.Duration // of a request; default 30 s
	Interval time.Duration // between the points of the series; default 250 ms

	Begin    func()         // called when measuring begins; may be nil
	End      func()         // called when measuring ends; may be nil
	Progress func(Progress) // called once in an interval; may be nil
}

// Progress is how it goes.
type Progress struct {
	Warming   bool
	Left      time.Duration
	PerSecond float64 // answers in the last interval
	P99       time.Duration
	Failed    int64 // in all
}

// Point is what happened in one interval.
type Point struct {
	At     time.Duration // end of the interval, since measuring began
	Length time.Duration
	Count  int64 // answers
	Failed int64
	P50    time.Duration // 0 without answers
	P99    time.Duration
}

// Result is what was measured. An answer other than 200 is a failure, and so is
// a connection that breaks or an answer that does not come in time.
type Result struct {
	Open     bool  // the loop
	Answered int64 // in Time
	Total    int64 // answered, the warm-up included
	Failed   int64 // requests of Time without a good answer
	Failures map[string]int64
	Time     time.Duration // measured

	// Latency has an open loop's requests that were due in Time, counted from
	// when they were due and with those that were never answered; and a closed
	// loop's that were answered in Time. In nanoseconds.
	Latency *hdrhistogram.Histogram
	// Waits has, of the answers in Latency that say so, the time until their
	// critical section began.
	Waits   *hdrhistogram.Histogram
	Series  []Point
	Clients []int64       // answers in Time to each client
	Own     time.Duration // CPU time of the thread in Time
}

// phases of a run.
type phase int

const (
	warming phase = iota
	measuring
	draining // requests that were due in Time are still to be answered
)

// How often timeouts and pauses are looked after, how long a client pauses
// after a failure, and how long an open loop waits for its last answers.
const (
	tick       = 5 * time.Millisecond
	retryPause = 10 * time.Millisecond
	drainTime  = 3 * time.Second
)

// course is a run.
type course struct {
	Config
	*requests
	poll    *rawio.Poll
	to      netip.AddrPort
	byFD    map[int32]*conn
	in      []byte
	result  Result
	phase   phase
	clock   Clock
	began   time.Duration // of measuring
	ends    time.Duration // of the phase
	sampled time.Duration // when the last point was taken
	nextTic time.Duration

	recent       *hdrhistogram.Histogram
	recentCount  int64
	recentFailed int64
	failed       int64 // in all

	conns []*conn
	idle  []*conn // that an open loop can send on
	due   time.Duration
	rng   *rand.Rand
}

// longest is the longest time that histograms tell from longer ones.
const longest = 2 * time.Minute

// newHistogram covers a microsecond to the longest time.
func newHistogram(digits int) *hdrhistogram.Histogram {
	return hdrhistogram.New(int64(time.Microsecond), int64(longest), digits)
}

// Run makes the load until it is done or ctx ends, when it returns ctx's cause.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	if cfg.Clients < 1 || cfg.Mix.Keys < 1 || cfg.Time <= 0 || cfg.Rate < 0 {
		return nil, errors.New("load: there must be clients, keys and time, and no negative rate")
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 30 * time.Second
	}
	if cfg.Interval == 0 {
		cfg.Interval = 250 * time.Millisecond
	}
	c := &course{
		Config: cfg, requests: newRequests(cfg.Mix), recent: newHistogram(2), rng: rand.New(rand.NewPCG(3, 4)), clock: NewClock(),
		result: Result{Open: cfg.Rate > 0, Latency: newHistogram(3), Waits: newHistogram(3), Clients: make([]int64, cfg.Clients), Failures: make(map[string]int64)},
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := c.open(); err != nil {
		return nil, err
	}
	defer c.close()
	if err := c.run(ctx); err != nil {
		return nil, err
	}
	return &c.result, nil
}

func (c *course) now() time.Duration { return c.clock.Now() }

func (c *course) run(ctx context.Context) error {
	now := c.now()
	c.ends = now + c.WarmUp
	c.sampled, c.due = now, now
	for i := range c.Clients {
		k := &conn{number: i, fd: -1, position: i * sequenceLen / c.Clients}
		c.conns = append(c.conns, k)
		c.free(k, now)
	}
	for {
		now = c.now()
		if now >= c.nextTic {
			c.nextTic = now + tick
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			c.look(now)
		}
		if now >= c.ends && !c.advance(now) {
			return nil
		}
		c.send(now)
		if err := c.wait(c.until()); err != nil {
			return err
		}
	}
}

// until returns how long nothing needs to be done unless something arrives.
func (c *course) until() time.Duration {
	next := min(c.nextTic, c.ends)
	if c.Rate > 0 && len(c.idle) > 0 && c.phase != draining {
		next = min(next, c.due)
	}
	return max(0, next-c.now())
}

// advance goes on to the next phase; false if there is none.
func (c *course) advance(now time.Duration) bool {
	switch c.phase {
	case warming:
		c.phase = measuring
		if c.Begin != nil {
			c.Begin()
		}
		c.sample(now) // a point of the warm-up, which is not kept
		c.result.Series = nil
		c.result.Own -= proc.ThreadTime(0)
		c.began = c.now()
		c.sampled, c.ends = c.began, c.began+c.Time
		return true
	case measuring:
		c.sample(now)
		c.result.Time = now - c.began
		c.result.Own += proc.ThreadTime(0)
		if c.End != nil {
			c.End()
		}
		c.phase = draining
		c.ends = c.now() + drainTime
		return true
	}
	c.abandon(now)
	return false
}

// abandon counts what has no answer.
func (c *course) abandon(now time.Duration) {
	for _, k := range c.conns {
		if k.waiting {
			c.lose(now-k.begun, "not answered in the end")
		}
	}
	for c.mustSend() {
		c.lose(now-c.due, "not even sent in the end")
		c.step()
	}
}

func (c *course) lose(latency time.Duration, why string) {
	c.result.Failed++
	c.result.Failures[why]++
	if c.Rate > 0 {
		record(c.result.Latency, latency)
	}
}

// mustSend reports whether a request of an open loop was due in time and is
// not sent yet.
func (c *course) mustSend() bool { return c.Rate > 0 && c.due < c.began+c.result.Time }

// step draws the time of the next request of an open loop: they come
// independently of each other.
func (c *course) step() { c.due += time.Duration(c.rng.ExpFloat64() / c.Rate * float64(time.Second)) }

// send sends the requests that are due, and ends a drain that is complete.
func (c *course) send(now time.Duration) {
	for c.Rate > 0 && len(c.idle) > 0 && c.due <= now && (c.phase != draining || c.mustSend()) {
		k := c.idle[len(c.idle)-1]
		c.idle = c.idle[:len(c.idle)-1]
		due := c.due
		c.step()
		c.request(k, due)
	}
	waits := func(k *conn) bool { return k.waiting }
	if c.phase == draining && !c.mustSend() && !slices.ContainsFunc(c.conns, waits) {
		c.ends = now
	}
}

// free lets a client that has its answer go on.
func (c *course) free(k *conn, now time.Duration) {
	switch {
	case c.Rate > 0:
		c.idle = append(c.idle, k)
	case c.phase != draining:
		c.request(k, now)
	}
}

// request sends the client's next request, which was due at a time.
func (c *course) request(k *conn, due time.Duration) {
	k.position = (k.position + 1) & (sequenceLen - 1)
	k.begun, k.waiting, k.body = due, true, k.body[:0]
	err := c.connect(k)
	if err == nil {
		err = k.write(c.raw[c.sequence[k.position]])
	}
	if err != nil {
		c.broken(k, c.now(), err)
	}
}

// look does what no arrival makes happen.
func (c *course) look(now time.Duration) {
	for _, k := range c.conns {
		switch {
		case k.waiting && now-k.begun > c.Timeout && k.fd >= 0:
			c.broken(k, now, errTimeout)
		case k.pausedUntil > 0 && now >= k.pausedUntil:
			k.pausedUntil = 0
			c.free(k, now)
		}
	}
	if now-c.sampled >= c.Interval {
		c.sample(now)
	}
}

var errTimeout = errors.New("no answer in time")

// answered takes the answer to a client's request.
func (c *course) answered(k *conn, now time.Duration) {
	if k.answer.Status != 200 {
		c.fail(k, now, fmt.Sprintf("status %d", k.answer.Status))
		return
	}
	k.waiting = false
	c.result.Total++
	c.recentCount++
	record(c.recent, now-k.begun)
	if c.phase == measuring {
		c.result.Answered++
		c.result.Clients[k.number]++
	}
	if c.mine(k) {
		record(c.result.Latency, now-k.begun)
		if started := k.started(); started > 0 {
			record(c.result.Waits, started-k.begun)
		}
	}
	c.free(k, now)
}

// mine reports whether a client's request belongs to the time that is measured.
func (c *course) mine(k *conn) bool {
	if c.Rate == 0 {
		return c.phase == measuring
	}
	return c.phase != warming && k.begun >= c.began && (c.phase == measuring || k.begun < c.began+c.result.Time)
}

func record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(int64(max(time.Microsecond, min(d, longest)))) // cannot fail in its range
}

// fail counts a request without a good answer.
func (c *course) fail(k *conn, now time.Duration, why string) {
	k.waiting = false
	c.failed++
	c.recentFailed++
	if c.mine(k) {
		c.lose(now-k.begun, why)
	}
	k.pausedUntil = now + retryPause
}

// broken closes a client's connection, which fails its request.
func (c *course) broken(k *conn, now time.Duration, err error) {
	c.hangUp(k)
	if k.waiting {
		c.fail(k, now, err.Error())
	}
}

// sample takes a point.
func (c *course) sample(now time.Duration) {
	p := Point{At: now - c.began, Length: now - c.sampled, Count: c.recentCount, Failed: c.recentFailed}
	if c.recentCount > 0 {
		p.P50 = time.Duration(c.recent.ValueAtQuantile(50))
		p.P99 = time.Duration(c.recent.ValueAtQuantile(99))
	}
	if c.phase == measuring && p.Length > 0 {
		c.result.Series = append(c.result.Series, p)
	}
	c.sampled, c.recentCount, c.recentFailed = now, 0, 0
	c.recent.Reset()
	if c.Progress != nil {
		rate := 0.0
		if p.Length > 0 {
			rate = float64(p.Count) / p.Length.Seconds()
		}
		c.Progress(Progress{Warming: c.phase == warming, Left: max(0, c.ends-now), PerSecond: rate, P99: p.P99, Failed: c.failed})
	}
}
