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
	"golang.org/x/sys/unix"

	"github.com/keyway-go/keyway/loadtest/internal/proc"
	"github.com/keyway-go/keyway/loadtest/internal/rawio"
)

// Config says what load to make.
type Config struct {
	Addr     string // ip:port
	Clients  int    // connections
	Streams  int    // requests at once on each connection of HTTP/2 or the link; HTTP/1.1 has one
	TLS      bool   // HTTP/1.1 over TLS, whatever the certificate
	HTTP2    bool   // without TLS, with prior knowledge
	Link     *Link  // nil for HTTP
	Rate     float64
	Mix      Mix
	WarmUp   time.Duration
	Time     time.Duration // that is measured; in a closed loop it is longer until there is an answer
	Timeout  time.Duration // of a request; default 30 s
	Interval time.Duration // between the points of the series; default 250 ms

	Groups map[string][]int // processes whose CPU time is taken at both ends of Time

	Begin    func()         `json:"-"` // called when measuring begins; may be nil
	End      func()         `json:"-"` // called when measuring ends; may be nil
	Progress func(Progress) `json:"-"` // called once in an interval; may be nil
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
	Bytes    int64 // of bodies, in Time
	Failures Failures
	Time     time.Duration // measured

	// Latency has an open loop's requests that were due in Time, counted from
	// when they were due and with those that were never answered; and a closed
	// loop's that were answered in Time. In nanoseconds.
	Latency  *hdrhistogram.Histogram `json:"-"`
	P50, P99 time.Duration           // of Latency
	// Waits has, of the answers in Latency that say so, the time until their
	// critical section began.
	Waits   *hdrhistogram.Histogram  `json:"-"`
	Series  []Point                  `json:"-"`
	Clients []int64                  `json:"-"` // answers in Time to each client
	Own     time.Duration            // CPU time of the thread in Time, or of this process
	CPU     map[string]time.Duration // of the groups
}

// sample adds the CPU time of groups, with a sign.
func (r *Result) sample(groups map[string][]int, own, sign time.Duration) {
	r.Own += sign * own
	for name, pids := range groups {
		r.CPU[name] += sign * proc.CPUTime(pids...)
	}
}

func (r *Result) finish() *Result {
	r.P50, r.P99 = time.Duration(r.Latency.ValueAtQuantile(50)), time.Duration(r.Latency.ValueAtQuantile(99))
	return r
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
	poll     *rawio.Poll
	to       netip.AddrPort
	byFD     map[int32]*conn
	in       []byte
	result   Result
	phase    phase
	clock    Clock
	began    time.Duration // of measuring
	ends     time.Duration // of the phase
	sampled  time.Duration // when the last point was taken
	nextTic  time.Duration
	nextLook time.Duration // for timeouts

	recent       *hdrhistogram.Histogram
	recentCount  int64
	recentFailed int64
	failed       int64 // in all

	conns []*conn
	idle  []*conn // that an open loop can send on
	due   time.Duration
	rng   *rand.Rand

	resting []rest // clients whose requests have failed, in the order in which they go on
}

type rest struct {
	client *conn
	until  time.Duration
}

// longest is the longest time that histograms tell from longer ones.
const longest = 2 * time.Minute

// newHistogram covers a microsecond to the longest time.
func newHistogram(digits int) *hdrhistogram.Histogram {
	return hdrhistogram.New(int64(time.Microsecond), int64(longest), digits)
}

// Run makes the load until it is done or ctx ends, when it returns ctx's cause.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	switch {
	case cfg.Clients < 1 || cfg.Mix.Keys < 1 || cfg.Time <= 0 || cfg.Rate < 0:
		return nil, errors.New("load: there must be clients, keys and time, and no negative rate")
	case cfg.TLS && (cfg.HTTP2 || cfg.Link != nil) || (cfg.TLS || cfg.Link != nil) && cfg.Rate > 0:
		return nil, errors.New("load: HTTP/2 and the link have no TLS here, and TLS and the link no rate")
	case cfg.TLS || cfg.Link != nil:
		return runCrowd(ctx, cfg)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c, err := newCourse(cfg)
	if err != nil {
		return nil, err
	}
	defer c.close()
	if err := c.run(ctx); err != nil {
		return nil, err
	}
	return c.result.finish(), nil
}

func newCourse(cfg Config) (*course, error) {
	cfg.Streams = max(cfg.Streams, 1)
	if cfg.Timeout == 0 {
		cfg.Timeout = timeout
	}
	if cfg.Interval == 0 {
		cfg.Interval = 250 * time.Millisecond
	}
	c := &course{
		Config: cfg, requests: newRequests(&cfg), recent: newHistogram(2), rng: rand.New(rand.NewPCG(3, 4)), clock: NewClock(),
		result: newResult(&cfg, 3),
	}
	return c, c.open()
}

func newResult(cfg *Config, digits int) Result {
	return Result{Open: cfg.Rate > 0, Latency: newHistogram(digits), Waits: newHistogram(digits), Clients: make([]int64, cfg.Clients), CPU: make(map[string]time.Duration)}
}

// crowdSize is how many connections Hold opens at once.
const crowdSize = 100

// Hold opens the connections, sends one request on each, calls held once all are answered, and keeps them until ctx ends.
func Hold(ctx context.Context, cfg Config, held func()) error {
	c, err := newCourse(cfg)
	if err != nil {
		return err
	}
	defer c.close()
	c.phase = draining
	for number := range cfg.Clients {
		k := c.add(number)
		c.request(k, c.now())
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
	<-ctx.Done()
	return nil
}

func (c *course) now() time.Duration { return c.clock.Now() }

func (c *course) run(ctx context.Context) error {
	now := c.now()
	c.ends = now + c.WarmUp
	c.sampled, c.due = now, now
	for i := range c.Clients {
		k := c.add(i)
		for range c.Streams {
			c.free(k, now)
		}
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
		c.result.sample(c.Groups, proc.ThreadTime(0), -1)
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
		c.result.sample(c.Groups, proc.ThreadTime(0), 1)
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
	at := max(0, c.now()-c.began)
	c.result.Failures = c.result.Failures.with(Failure{What: why, Count: 1, First: at, Last: at})
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
	err := c.connect(k)
	if err == nil {
		k.session.send(c.next(&k.position), due)
		err = c.flush(k)
	} else {
		c.fail(k, due, c.now(), kindOf(err))
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
	if now >= c.nextLook {
		c.nextLook = now + 4*tick
		for _, k := range c.conns {
			if all := k.underWay(); len(all) > 0 && now-slices.Min(all) > c.Timeout {
				c.broken(k, now, errTimeout)
			}
		}
	}
	if now-c.sampled >= c.Interval {
		c.sample(now)
	}
}

var errTimeout = errors.New("no answer in time")

// answered takes the answer to a client's request.
func (k *conn) answered(begun time.Duration, status int, length int64, body []byte) {
	c, now := k.course, k.course.now()
	if status != 200 {
		c.fail(k, begun, now, statusOf(status, body))
		return
	}
	c.result.Total++
	c.recentCount++
	record(c.recent, now-begun)
	if c.phase == measuring {
		c.result.Answered++
		c.result.Bytes += length
		c.result.Clients[k.number]++
	}
	if c.mine(begun) {
		record(c.result.Latency, now-begun)
		if started := started(body); started > 0 {
			record(c.result.Waits, started-begun)
		}
	}
	switch {
	case c.Rate > 0:
		c.idle = append(c.idle, k)
	case c.phase != draining: // it is written with what else there is
		k.session.send(c.next(&k.position), now)
	}
}

// mine reports whether a request belongs to the time that is measured.
func (c *course) mine(begun time.Duration) bool {
	if c.Rate == 0 {
		return c.phase == measuring
	}
	return c.phase != warming && begun >= c.began && (c.phase == measuring || begun < c.began+c.result.Time)
}

func record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(int64(max(time.Microsecond, min(d, longest)))) // cannot fail in its range
}

// fail counts a request without a good answer.
func (c *course) fail(k *conn, begun, now time.Duration, why string) {
	c.failed++
	c.recentFailed++
	if c.mine(begun) {
		c.lose(now-begun, why)
	}
	c.resting = append(c.resting, rest{k, now + retryPause})
}

// broken closes a client's connection, which fails its requests.
func (c *course) broken(k *conn, now time.Duration, err error) {
	all := k.underWay()
	c.hangUp(k)
	for _, begun := range all {
		c.fail(k, begun, now, kindOf(err))
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

// Connections.

func (c *course) open() (err error) {
	c.byFD, c.in = make(map[int32]*conn), make([]byte, 256<<10)
	if c.poll, err = rawio.NewPoll(); err == nil {
		c.to, err = netip.ParseAddrPort(c.Addr)
	}
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	return nil
}

func (c *course) close() {
	for _, k := range c.conns {
		c.hangUp(k)
	}
	c.poll.Close()
}

// wait handles what arrives, for as long as d at most.
func (c *course) wait(d time.Duration) error {
	ready, err := c.poll.Wait(d)
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	for _, e := range ready {
		if k := c.byFD[e.Fd]; k != nil {
			if err := c.receive(k); err != nil {
				c.broken(k, c.now(), err)
			}
		}
	}
	return nil
}

// receive takes what has come on a connection.
func (c *course) receive(k *conn) error {
	n, err := rawio.Receive(k.fd, c.in)
	if n == 0 || err != nil {
		return err
	}
	if err := k.session.feed(c.in[:n]); err != nil {
		return err
	}
	return c.flush(k)
}

// conn is a client with its connection.
type conn struct {
	course   *course
	number   int
	position int     // in the sequence of requests
	fd       int     // -1: not connected
	session  session // nil likewise
}

func (c *course) add(number int) *conn {
	k := &conn{course: c, number: number, fd: -1, position: number * sequenceLen / c.Clients}
	c.conns = append(c.conns, k)
	return k
}

func (k *conn) underWay() []time.Duration {
	if k.session == nil {
		return nil
	}
	return k.session.underWay()
}

// connectTime bounds connecting.
const connectTime = time.Second

// connect opens a client's connection if there is none.
func (c *course) connect(k *conn) (err error) {
	if k.fd >= 0 {
		return nil
	}
	if k.fd, err = c.poll.Dial(c.to, connectTime); err == nil {
		k.session = newSession(&c.Config, k)
		c.byFD[int32(k.fd)] = k
	}
	return err
}

func (c *course) hangUp(k *conn) {
	if k.fd >= 0 {
		delete(c.byFD, int32(k.fd))
		unix.Close(k.fd)
		k.fd, k.session = -1, nil
	}
}

// flush writes what is to be sent. It waits in the rare case that the socket takes nothing more.
func (c *course) flush(k *conn) error {
	for b := k.session.unsent(); len(b) > 0; {
		n, err := rawio.Write(k.fd, b)
		switch err {
		case nil:
			b = b[n:]
		case unix.EAGAIN:
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(k.fd), Events: unix.POLLOUT}}, 1000); err != nil && err != unix.EINTR {
				return err
			}
		case unix.EINTR:
		default:
			return err
		}
	}
	return nil
}
