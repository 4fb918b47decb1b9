package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// mix is what the clients ask for.
type mix struct {
	Keys, Hot int           // numbers of keys
	HotShare  float64       // of the requests go to the hot keys
	Slow      int           // number of keys that are busy most of the time, and so when they move
	SlowShare float64       // of the requests go to the slow keys
	SlowWork  time.Duration // of the app on a request for a slow key, at most
	Think     time.Duration // of a client between requests, at most
	Work      time.Duration // of the app on a request, at most
	Long      time.Duration // of the app on a few requests, at most
	LongShare float64
	Posts     float64 // of the requests have a body

	Left       int           // number of keys whose requests clients may leave
	LeftShare  float64       // of the requests go to these; half of them are left
	Stay       time.Duration // of a client that leaves, at most
	WindUp     time.Duration // of the app once a client has left, at most; less than a sidecar's grace, 0.15 TTL
	LeaveLimit time.Duration // of the app on a request that the client may leave, without WindUp
}

// newMix chooses a mix. An execution that its worker cannot cancel, because
// the worker is paused, has to end by itself before others take over: the
// worker admits it until 0.7 of the session TTL, others come after 1.0.
func newMix(rng *rand.Rand, ttl time.Duration) mix {
	return mix{
		Keys: 500, Hot: 3,
		HotShare: 0.1 + 0.3*rng.Float64(),
		Slow:     32, SlowShare: 0.08 + 0.04*rng.Float64(), SlowWork: min(ttl/10, 400*time.Millisecond),
		Think:     time.Duration(20+rng.IntN(40)) * time.Millisecond,
		Work:      time.Duration(2+rng.IntN(8)) * time.Millisecond,
		Long:      ttl / 8,
		LongShare: 0.004 + 0.008*rng.Float64(),
		Posts:     0.5,
		Left:      32, LeftShare: 0.06 + 0.04*rng.Float64(), Stay: 100 * time.Millisecond, WindUp: ttl / 20, LeaveLimit: ttl / 8,
	}
}

func (m mix) String() string {
	return fmt.Sprintf("%d keys, %d hot ones with %.0f %% of the requests, %d slow ones with %.0f %% and work up to %v, %d with %.0f %% whose clients leave after up to %v while the app goes on for up to %v; else %v work, %.1f %% up to %v; %v think",
		m.Keys, m.Hot, 100*m.HotShare, m.Slow, 100*m.SlowShare, m.SlowWork, m.Left, 100*m.LeftShare, m.Stay, m.WindUp, m.Work, 100*m.LongShare, m.Long, m.Think)
}

// job is what one request asks for.
type job struct {
	key  string
	work time.Duration // of the app; once the client has left, if it does
	post bool

	way   way
	stay  time.Duration // until the client leaves
	limit time.Duration // of the app on a request whose client leaves, before work
}

func (m mix) next(rng *rand.Rand) job {
	post := rng.Float64() < m.Posts
	long := rng.Float64() < m.LongShare
	switch tier := rng.Float64(); {
	case tier < m.SlowShare:
		return job{key: fmt.Sprintf("slow-%d", rng.IntN(m.Slow)), work: upTo(rng, m.SlowWork), post: post}
	case tier < m.SlowShare+m.HotShare:
		return job{key: fmt.Sprintf("hot-%d", rng.IntN(m.Hot)), work: upTo(rng, m.Work), post: post}
	case tier < m.SlowShare+m.HotShare+m.LeftShare:
		j := job{key: fmt.Sprintf("left-%d", rng.IntN(m.Left)), work: upTo(rng, m.Work), post: post}
		if rng.IntN(2) == 0 {
			j.way, j.work, j.stay, j.limit = 1+way(rng.IntN(int(ways)-1)), upTo(rng, m.WindUp), upTo(rng, m.Stay), m.LeaveLimit
		}
		return j
	case long:
		return job{key: fmt.Sprintf("key-%d", rng.IntN(m.Keys)), work: upTo(rng, m.Long), post: post}
	}
	return job{key: fmt.Sprintf("key-%d", rng.IntN(m.Keys)), work: upTo(rng, m.Work), post: post}
}

func upTo(rng *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(d) + 1))
}

// request is what a client has seen of its request.
type request struct {
	Number int64
	Key    string
	Way    way
	Work   time.Duration
	Limit  time.Duration // see job
	Send   time.Duration // by the observer's clock
	Recv   time.Duration // zero while it is under way
	Status int           // zero if there was no answer
	Note   string        // why, unless 200
	Retry  bool          // the answer has a Retry-After
	Value  int64
	Token  int64
}

func (r *request) ok() bool            { return r.Status == http.StatusOK }
func (r *request) left() bool          { return r.Way != toTheEnd }
func (r *request) took() time.Duration { return r.Recv - r.Send }

// patience is how long a client waits for an answer: much longer than a router
// holds a request and a paused worker stays paused.
const patience = 90 * time.Second

// load is a number of clients, each of which sends a request when it has the
// answer to the one before. For a client that waits for long another one steps
// in, so that the load goes on where it can.
type load struct {
	target  string // host:port
	now     func() time.Duration
	clients int
	jobs    func(client int) func() (job, time.Duration) // the next job, and how long to think before it

	http    *http.Client
	h2      *http.Client // HTTP/2, for requests that the client leaves
	running sync.WaitGroup
	numbers atomic.Int64
	done    atomic.Int64
	failed  atomic.Int64
	pending atomic.Int64
	oldest  sync.Map // of *request, under way

	mu      sync.Mutex
	next    int // number of the next client
	history []*request
}

const (
	longWait = 2 * time.Second // after which another client steps in
	maxCrowd = 4               // requests under way, in multiples of the clients
)

// run goes on until ctx ends and the last answer is there.
func (l *load) run(ctx context.Context) {
	transport := &http.Transport{MaxIdleConnsPerHost: l.clients, MaxIdleConns: 2 * l.clients, DisableCompression: true}
	defer transport.CloseIdleConnections()
	l.http = &http.Client{Transport: transport}
	h2 := &http.Transport{DisableCompression: true, Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	defer h2.CloseIdleConnections()
	l.h2 = &http.Client{Transport: h2}
	for range l.clients {
		l.add(ctx)
	}
	l.running.Wait()
}

// add starts one more client.
func (l *load) add(ctx context.Context) {
	l.mu.Lock()
	next := l.jobs(l.next)
	l.next++
	l.mu.Unlock()
	l.running.Go(func() { l.client(ctx, next) })
}

func (l *load) client(ctx context.Context, next func() (job, time.Duration)) {
	for replaced := false; !replaced; {
		j, think := next()
		if !sleep(ctx, think) {
			return
		}
		replaced = l.request(ctx, j)
	}
}

// request sends one request and reports whether another client has stepped in
// meanwhile.
func (l *load) request(ctx context.Context, j job) (replaced bool) {
	r := &request{Number: l.numbers.Add(1), Key: j.key, Way: j.way, Work: j.work, Limit: j.limit}
	l.mu.Lock()
	l.history = append(l.history, r)
	l.mu.Unlock()
	l.pending.Add(1)
	l.oldest.Store(r.Number, l.now())

	answered := make(chan struct{})
	go func() { defer close(answered); l.send(r, j) }()
	long := time.NewTimer(longWait)
	defer long.Stop()
	select {
	case <-answered:
	case <-long.C:
		if replaced = l.pending.Load() < int64(maxCrowd*l.clients) && ctx.Err() == nil; replaced {
			l.add(ctx)
		}
		<-answered
	}
	l.oldest.Delete(r.Number)
	l.pending.Add(-1)
	l.done.Add(1)
	if !r.ok() && !r.left() {
		l.failed.Add(1)
	}
	return replaced
}

func (l *load) send(r *request, j job) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r.Send = l.now()
	var err error
	if r.left() {
		err = l.leave(ctx, r, j)
	} else {
		err = l.ask(ctx, r, j.post)
	}
	r.Recv = l.now()
	if err != nil {
		r.Status, r.Note = 0, err.Error()
	}
}

// ask sends a request and reads its answer.
func (l *load) ask(ctx context.Context, r *request, post bool) error {
	method, body := http.MethodGet, io.Reader(nil)
	if post {
		method, body = http.MethodPost, strings.NewReader("one more")
	}
	req, err := l.newRequest(ctx, r, method, body)
	if err != nil {
		return err
	}
	res, err := l.http.Do(req)
	if err != nil {
		return err
	}
	return r.read(res)
}

func (l *load) newRequest(ctx context.Context, r *request, method string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+l.target+"/count", body)
	if err == nil {
		req.Header = r.header()
	}
	return req, err
}

// read reads the answer in full.
func (r *request) read(res *http.Response) error {
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 4<<10))
	if err != nil {
		return fmt.Errorf("the answer %d broke off: %w", res.StatusCode, err)
	}
	r.Status, r.Retry = res.StatusCode, res.Header.Get("Retry-After") != ""
	if r.ok() {
		if _, err := fmt.Sscanf(string(body), "%d %d", &r.Value, &r.Token); err != nil {
			return errors.Join(fmt.Errorf("the answer is %q", body), err)
		}
	} else {
		r.Note = strings.TrimSpace(string(body))
	}
	return nil
}

// longest returns how long the oldest request under way has been waiting.
func (l *load) longest() time.Duration {
	now, longest := l.now(), time.Duration(0)
	l.oldest.Range(func(_, since any) bool {
		longest = max(longest, now-since.(time.Duration))
		return true
	})
	return longest
}

// requests returns the history of all clients; run has returned.
func (l *load) requests() []*request { return l.history }
