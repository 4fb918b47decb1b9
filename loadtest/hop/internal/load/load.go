//go:build linux

// Package load makes requests, in a closed loop or at a given rate, and measures
// the answers: one thread over epoll, requests made up in advance, and no more
// parsing than it takes to find the end of an answer.
package load

import (
	"errors"
	"fmt"
	"math/rand"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/keyway-go/keyway/loadtest/internal/proc"
)

// Config says what load to make.
type Config struct {
	Addr        string // host:port
	TLS         bool   // whatever the certificate
	HTTP2       bool   // without TLS, with prior knowledge
	Link        *Link  // nil for HTTP
	Forwarded   bool   // requests are as a proxy sends them on: they tell of it
	Connections int
	Streams     int // requests at once on each connection; HTTP/1.1 has one
	Path        string
	Keys        int     // number of different keys
	Rate        float64 // requests per second in all, at random times, from when on latency counts; 0: each follows an answer. For HTTP/1.1 without TLS
	WarmUp      time.Duration
	Time        time.Duration // that is measured, at least; longer until there is an answer. 0: each connection sends one request and is then left open

	// Groups are processes whose CPU time is taken at both ends of Time.
	Groups map[string][]int
}

// Result is what was measured. Answers other than 200 are failures.
type Result struct {
	Requests int64         // answered in Time
	Failed   int64         // in Time, the warm-up and after it
	Total    int64         // answered, the warm-up included
	Bytes    int64         // of bodies, in Time
	Time     time.Duration // measured
	P50, P99 time.Duration
	CPU      map[string]time.Duration // of the groups
	Own      time.Duration            // CPU time of this process
	Failures Failures                 // by kind, in order of their first
}

// HeaderKey is the header that carries the key.
const HeaderKey = "X-Key"

// host is the host that requests are for.
const host = "bench.example"

// requestFields returns the fields of all requests but for the key.
func requestFields(cfg *Config) [][2]string {
	if cfg.Forwarded {
		return forwardedFields[:]
	}
	return forwardedFields[:2]
}

var forwardedFields = [...][2]string{
	{"User-Agent", "keyway-hop"}, {"Accept", "*/*"},
	{"Forwarded", `for="127.0.0.1:40404";host=` + host + ";proto=http"}, {"X-Forwarded-For", "127.0.0.1"}, {"X-Forwarded-Host", host}, {"X-Forwarded-Proto", "http"},
}

// KeyName returns the key with a number.
func KeyName(i int) string { return fmt.Sprintf("k%06d", i) }

// drain bounds the wait for the last answers.
const drain = 30 * time.Second

// phases of a run.
const (
	warming int32 = iota
	measuring
	ending
)

// course is what all connections of a run share.
type course struct {
	cfg      Config
	requests [][]byte // by key
	sequence []uint32 // of keys
	phase    atomic.Int32
	answered chan struct{} // closed at the first answer that is measured
	first    sync.Once
	made     time.Time

	began, ended time.Time
	cpu          map[string]time.Duration
	own          time.Duration
}

// sequenceLen is a power of two.
const sequenceLen = 1 << 16

func newCourse(cfg Config) *course {
	c := &course{cfg: cfg, sequence: make([]uint32, sequenceLen), answered: make(chan struct{}), cpu: make(map[string]time.Duration), made: time.Now()}
	for i := range cfg.Keys {
		c.requests = append(c.requests, newRequest(cfg, KeyName(i)))
	}
	random := rand.New(rand.NewSource(1)) // the same keys each time
	for i := range c.sequence {
		c.sequence[i] = uint32(random.Intn(cfg.Keys))
	}
	return c
}

func newRequest(cfg Config, key string) []byte {
	switch {
	case cfg.Link != nil:
		return []byte(key)
	case cfg.HTTP2:
		return h2Request(cfg, key)
	}
	return h1Request(cfg, key)
}

// since returns for how long the load has been made.
func (c *course) since() time.Duration { return time.Since(c.made) }

// enter begins a phase.
func (c *course) enter(phase int32) {
	sample := func(sign time.Duration) {
		for name, pids := range c.cfg.Groups {
			c.cpu[name] += sign * proc.CPUTime(pids...)
		}
		c.own += sign * ownCPU()
	}
	switch phase {
	case measuring:
		sample(-1)
		c.began = time.Now()
	case ending:
		c.ended = time.Now()
		sample(1)
	}
	c.phase.Store(phase)
}

// meter counts the answers of the connections of one goroutine.
type meter struct {
	course    *course
	position  int   // in the sequence
	due       int64 // when the next request is, with a rate
	random    *rand.Rand
	left      int                     // requests that may still be sent; negative for no bound
	latencies *hdrhistogram.Histogram // in nanoseconds
	requests  int64
	bytes     int64
	total     int64
	failed    int64
	failures  Failures
}

// longest is the longest latency that is told from longer ones.
const longest = 2 * time.Minute

// newMeter returns a meter that keeps latencies to within 1 %.
func newMeter(c *course) *meter {
	return &meter{course: c, left: -1, latencies: hdrhistogram.New(1, int64(longest), 2)}
}

func (m *meter) quantile(percent float64) time.Duration {
	return time.Duration(m.latencies.ValueAtQuantile(percent))
}

// next returns the request to send next, and when it was due, or false if there
// is none now.
func (m *meter) next(now int64) (request []byte, begun int64, ok bool) {
	if m.left == 0 || m.course.phase.Load() == ending {
		return nil, 0, false
	}
	begun = now
	if rate := m.course.cfg.Rate; rate > 0 {
		if m.due == 0 {
			m.due, m.random = now, rand.New(rand.NewSource(1))
		}
		if now < m.due {
			return nil, 0, false
		}
		begun = m.due
		m.due += int64(m.random.ExpFloat64() * 1e9 / rate)
	}
	m.left--
	m.position = (m.position + 1) & (sequenceLen - 1)
	return m.course.requests[m.course.sequence[m.position]], begun, true
}

// answered counts the answer to a request sent at begun. detail says more of one that
// is none with 200.
func (m *meter) answered(begun, now int64, status int, bytes int64, detail string) {
	if status != 200 {
		m.fail(&statusError{status, detail})
		return
	}
	m.total++
	if m.course.phase.Load() == measuring {
		if m.requests++; m.requests == 1 {
			m.course.first.Do(func() { close(m.course.answered) })
		}
		m.bytes += bytes
		_ = m.latencies.RecordValue(min(now-begun, int64(longest))) // cannot fail in its range
	}
}

func (m *meter) fail(err error) {
	m.failed++
	m.failures = m.failures.with(Failure{What: kindOf(err), Count: 1, First: m.course.since(), Last: m.course.since()})
}

func (m *meter) merge(o *meter) {
	m.requests += o.requests
	m.bytes += o.bytes
	m.total += o.total
	m.failed += o.failed
	for _, f := range o.failures {
		m.failures = m.failures.with(f)
	}
	m.latencies.Merge(o.latencies)
}

func (m *meter) result() Result {
	c := m.course
	return Result{
		Requests: m.requests, Failed: m.failed, Total: m.total, Bytes: m.bytes, Time: c.ended.Sub(c.began), CPU: c.cpu, Own: c.own,
		P50: m.quantile(50), P99: m.quantile(99), Failures: m.failures,
	}
}

// session is the client's side of one connection, without the connection.
type session interface {
	// begin appends what is to be sent first.
	begin(out []byte, now int64) []byte
	// feed takes what came and appends what is to be sent.
	feed(in, out []byte, now int64) ([]byte, error)
	// busy tells how many requests are under way.
	busy() int
}

func newSession(m *meter) session {
	if m.course.cfg.HTTP2 {
		return &h2{meter: m}
	}
	return &h1{meter: m}
}

// start is what nanoseconds are counted from.
var start = time.Now()

func nanoseconds() int64 { return int64(time.Since(start)) }

func ownCPU() time.Duration { return proc.CPUTime(0) }

// Run makes the load. With Config.Time 0 it keeps the connections open until
// release is closed, and calls idle once all of them are.
func Run(cfg Config, idle func(), release <-chan struct{}) (Result, error) {
	switch {
	case cfg.Connections < 1 || cfg.Keys < 1:
		return Result{}, errors.New("load: there must be connections and keys")
	case (cfg.HTTP2 || cfg.Link != nil) && (cfg.TLS || cfg.Streams < 1):
		return Result{}, errors.New("load: HTTP/2 and the link need streams, and have no TLS here")
	case cfg.Rate > 0 && (cfg.TLS || cfg.HTTP2 || cfg.Link != nil || cfg.Time == 0):
		return Result{}, errors.New("load: a rate goes with HTTP/1.1 without TLS, for some time")
	case (cfg.TLS || cfg.Link != nil) && cfg.Time == 0:
		return Result{}, errors.New("load: idle connections are of HTTP without TLS here")
	case cfg.Link != nil:
		return runLink(cfg)
	case cfg.TLS:
		return runBlocking(cfg)
	}
	return runPolling(cfg, idle, release)
}
