//go:build linux

package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/keyway-go/keyway/loadtest/internal/proc"
)

// Config says what load to make.
type Config struct {
	Addr    string // host:port
	Clients int    // connections; calls count as one
	Streams int    // requests at once on each connection of HTTP/2, or calls; HTTP/1.1 has one
	TLS     bool   // HTTP/1.1 over TLS, whatever the certificate
	HTTP2   bool   // without TLS, with prior knowledge
	Rate    float64
	Mix     Mix
	WarmUp  time.Duration
	Time    time.Duration // that is measured; in a closed loop it is longer until there is an answer
	Timeout time.Duration // of a request; default 30 s

	// Call makes a request for a key, and returns how long the answer's body was. It takes the place of
	// connections to Addr; nil for these.
	Call func(ctx context.Context, key string) (length int64, err error)

	Begin func() // called when measuring begins; may be nil
	End   func() // called when measuring ends; may be nil
}

// Point is what happened in one interval.
type Point struct {
	At     time.Duration // end of the interval, since measuring began
	Length time.Duration
	Count  int64 // answers
	Failed int64
	P99    time.Duration // 0 without answers
}

// Result is what was measured. An answer other than 200 is a failure, and so is
// a connection that breaks or an answer that does not come in time.
type Result struct {
	Open     bool  // the loop
	Answered int64 // in Time
	Total    int64 // answered, the warm-up included
	Failed   int64 // requests of Time without a good answer
	Bytes    int64 // of bodies, in Time
	Failures Failures
	Time     time.Duration // measured

	// Latency has nanoseconds. In an open loop it has all requests that were due in Time, answered
	// or not, from when they were due. In a closed loop it has the requests that were answered in Time.
	Latency *hdrhistogram.Histogram
	Series  []Point
	Clients []int64       // answers in Time to each client
	Own     time.Duration // CPU time in Time: of the loop's thread, or of this process for calls
}

// Quantile returns the latency that so many percent of the requests do not exceed.
func (r *Result) Quantile(percent float64) time.Duration {
	return time.Duration(r.Latency.ValueAtQuantile(percent))
}

// phases of a run.
type phase int

const (
	warming phase = iota
	measuring
	draining // requests that were due in Time are still to be answered
)

const (
	tick       = 5 * time.Millisecond   // how often pauses are looked after
	interval   = 250 * time.Millisecond // between the points of the series, and two looks at timeouts
	retryPause = 10 * time.Millisecond  // of a client after a failure
	drainTime  = 3 * time.Second        // an open loop waits for its last answers
)

// course is a run.
type course struct {
	Config
	*requests
	mu      sync.Mutex // of what follows, for the goroutines of calls; one thread makes all other loads
	result  Result
	phase   phase
	start   time.Time
	began   time.Duration // of measuring
	ends    time.Duration // of the phase
	sampled time.Duration // when the last point was taken
	recent  Point
	recents *hdrhistogram.Histogram

	poll    *poll
	byFD    map[int32]*conn
	in      []byte
	conns   []*conn
	idle    []*conn // that an open loop can send on
	due     time.Duration
	rng     *rand.Rand
	nextTic time.Duration
	failed  int64  // in all
	resting []rest // clients whose requests have failed, in the order in which they go on
}

type rest struct {
	client *conn
	until  time.Duration
}

// longest is the longest time that histograms tell from longer ones.
const longest = 2 * time.Minute

// NewHistogram covers a microsecond to two minutes, in nanoseconds.
func NewHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(int64(time.Microsecond), int64(longest), 3)
}

// Record adds a time to a histogram of [NewHistogram].
func Record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(int64(max(time.Microsecond, min(d, longest)))) // cannot fail in its range
}

// Run makes the load until it is done or ctx ends, when it returns ctx's cause.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	switch {
	case cfg.Clients < 1 || cfg.Mix.Keys < 1 || cfg.Time <= 0 || cfg.Rate < 0:
		return nil, errors.New("load: there must be clients, keys and time, and no negative rate")
	case cfg.Call != nil && cfg.Rate > 0:
		return nil, errors.New("load: calls have no rate here")
	}
	c, err := newCourse(cfg)
	if err != nil {
		return nil, err
	}
	defer c.close()
	if cfg.Call != nil {
		return &c.result, c.runCalls(ctx)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = proc.Punctual() // else requests are some microseconds late
	return &c.result, c.run(ctx)
}

func newCourse(cfg Config) (*course, error) {
	cfg.Streams = max(cfg.Streams, 1)
	if cfg.Timeout == 0 {
		cfg.Timeout = 30 * time.Second
	}
	c := &course{
		Config: cfg, requests: newRequests(&cfg), recents: NewHistogram(), rng: rand.New(rand.NewPCG(3, 4)), start: time.Now(),
		result: Result{Open: cfg.Rate > 0, Failures: make(Failures), Latency: NewHistogram(), Clients: make([]int64, cfg.Clients)},
		byFD:   make(map[int32]*conn), in: make([]byte, 256<<10),
	}
	c.ends = c.WarmUp
	var err error
	c.poll, err = newPoll()
	return c, err
}

// crowdSize is how many connections Hold opens at once.
const crowdSize = 100

// Hold opens the connections, sends one request on each, calls held once all are answered, and closes them.
func Hold(cfg Config, held func()) error {
	c, err := newCourse(cfg)
	if err != nil {
		return err
	}
	defer c.close()
	c.phase = draining
	for number := range cfg.Clients {
		c.request(c.add(number), c.now())
		if (number+1)%crowdSize != 0 && number+1 < cfg.Clients {
			continue
		}
		for end := c.now() + c.Timeout; c.waits() && c.now() < end; {
			if err := c.wait(tick); err != nil {
				return err
			}
		}
	}
	if c.failed > 0 || c.waits() {
		return fmt.Errorf("load: not all connections are answered with 200; %d are not", c.failed)
	}
	held()
	return nil
}

func (c *course) now() time.Duration { return time.Since(c.start) }

func (c *course) run(ctx context.Context) error {
	c.due = c.now()
	for i := range c.Clients {
		k := c.add(i)
		for range c.Streams {
			c.free(k, c.now())
		}
	}
	for {
		now := c.now()
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
		c.sample(now)
		c.result.Series = nil // it has a point of the warm-up
		c.result.Own = -c.own()
		c.began = c.now()
		c.sampled, c.ends = c.began, c.began+c.Time
		return true
	case measuring:
		if c.Rate == 0 && c.result.Answered+c.result.Failed == 0 && now < c.began+c.Time+c.Timeout {
			c.ends = now + tick
			return true
		}
		c.sample(now)
		c.result.Time = now - c.began
		c.result.Own += c.own()
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

// own returns the CPU time that the load itself takes.
func (c *course) own() time.Duration {
	if c.Call != nil {
		return proc.CPUTime(0)
	}
	return proc.ThreadTime()
}

// abandon counts what has no answer.
func (c *course) abandon(now time.Duration) {
	for _, k := range c.conns {
		for _, begun := range k.underWay() {
			c.lose(now-begun, "not answered in the end")
		}
	}
	for c.mustSend() {
		c.lose(now-c.due, "not even sent in the end")
		c.step()
	}
}

func (c *course) lose(latency time.Duration, why string) {
	c.result.Failed++
	c.result.Failures.add(why)
	if c.Rate > 0 {
		Record(c.result.Latency, latency)
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
	if c.phase == draining && !c.mustSend() && !c.waits() {
		c.ends = now
	}
}

// waits reports whether a request is under way.
func (c *course) waits() bool {
	return slices.ContainsFunc(c.conns, func(k *conn) bool { return len(k.underWay()) > 0 })
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
	err := k.connect()
	if err == nil {
		k.session.send(c.next(&k.position), due)
		err = k.flush()
	} else {
		c.fail(due, c.now(), kindOf(err))
		c.pause(k)
	}
	if err != nil {
		c.broken(k, c.now(), err)
	}
}

// look does what no arrival makes happen.
func (c *course) look(now time.Duration) {
	for len(c.resting) > 0 && now >= c.resting[0].until {
		k := c.resting[0].client
		c.resting = c.resting[1:]
		c.free(k, now)
	}
	if now-c.sampled < interval {
		return
	}
	for _, k := range c.conns {
		if all := k.underWay(); len(all) > 0 && now-slices.Min(all) > c.Timeout {
			c.broken(k, now, errTimeout)
		}
	}
	c.sample(now)
}

var errTimeout = errors.New("no answer in time")

// answered takes the answer to a client's request.
func (k *conn) answered(begun time.Duration, status int, length int64, body []byte) {
	c, now := k.course, k.course.now()
	if !c.count(k.number, begun, now, status, length, body) {
		c.pause(k)
		return
	}
	switch {
	case c.Rate > 0:
		c.idle = append(c.idle, k)
	case c.phase != draining: // it is written with what else there is
		k.session.send(c.next(&k.position), now)
	}
}

// count counts an answer to a client; false if it is a failure.
func (c *course) count(client int, begun, now time.Duration, status int, length int64, body []byte) bool {
	if status != 200 {
		c.fail(begun, now, statusOf(status, body))
		return false
	}
	c.result.Total++
	c.recent.Count++
	Record(c.recents, now-begun)
	if c.phase == measuring {
		c.result.Answered++
		c.result.Bytes += length
		c.result.Clients[client]++
	}
	if c.mine(begun) {
		Record(c.result.Latency, now-begun)
	}
	return true
}

// mine reports whether a request belongs to the time that is measured.
func (c *course) mine(begun time.Duration) bool {
	if c.Rate == 0 {
		return c.phase == measuring
	}
	return c.phase != warming && begun >= c.began && (c.phase == measuring || begun < c.began+c.result.Time)
}

// fail counts a request without a good answer.
func (c *course) fail(begun, now time.Duration, why string) {
	c.failed++
	c.recent.Failed++
	if c.mine(begun) {
		c.lose(now-begun, why)
	}
}

// pause lets a client whose request has failed go on in a while.
func (c *course) pause(k *conn) { c.resting = append(c.resting, rest{k, c.now() + retryPause}) }

// broken closes a client's connection, which fails its requests.
func (c *course) broken(k *conn, now time.Duration, err error) {
	all := k.underWay()
	k.hangUp()
	for _, begun := range all {
		c.fail(begun, now, kindOf(err))
		c.pause(k)
	}
}

// sample takes a point.
func (c *course) sample(now time.Duration) {
	p := c.recent
	p.At, p.Length, p.P99 = now-c.began, now-c.sampled, time.Duration(c.recents.ValueAtQuantile(99))
	if c.phase == measuring && p.Length > 0 {
		c.result.Series = append(c.result.Series, p)
	}
	c.sampled, c.recent = now, Point{}
	c.recents.Reset()
}

// wait handles what arrives, for as long as d at most.
func (c *course) wait(d time.Duration) error {
	ready, err := c.poll.wait(d)
	if err != nil {
		return err
	}
	for _, e := range ready {
		if k := c.byFD[e.Fd]; k != nil {
			if err := k.receive(); err != nil {
				c.broken(k, c.now(), err)
			}
		}
	}
	return nil
}

func (c *course) close() {
	for _, k := range c.conns {
		k.hangUp()
	}
	c.poll.close()
}
