package trial

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Mix is what the clients ask for.
type Mix struct {
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

// NewMix chooses a mix. An execution that its worker cannot cancel, because
// the worker is paused, has to end by itself before others take over: the
// worker admits it until 0.7 of the session TTL, others come after 1.0.
func NewMix(rng *rand.Rand, ttl time.Duration) Mix {
	return Mix{
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

func (m Mix) String() string {
	return fmt.Sprintf("%d keys, %d hot ones with %.0f %% of the requests, %d slow ones with %.0f %% and work up to %v, %d with %.0f %%, half of which clients leave after up to %v while the app goes on for up to %v; else %v work, %.1f %% up to %v; %v think",
		m.Keys, m.Hot, 100*m.HotShare, m.Slow, 100*m.SlowShare, m.SlowWork, m.Left, 100*m.LeftShare, m.Stay, m.WindUp, m.Work, 100*m.LongShare, m.Long, m.Think)
}

// Job is what one request asks for.
type Job struct {
	Key  string
	Work time.Duration // of the app; once the client has left, if it does
	Body int           // bytes of the body of a POST; 0: a GET

	stay  time.Duration // until the client leaves
	limit time.Duration // of the app on a request whose client leaves, before work; 0 if it does not
}

// Next returns what a client asks for next.
func (m Mix) Next(rng *rand.Rand) Job {
	body := 0
	if rng.Float64() < m.Posts {
		body = 8
	}
	long := rng.Float64() < m.LongShare
	switch tier := rng.Float64(); {
	case tier < m.SlowShare:
		return Job{Key: fmt.Sprintf("slow-%d", rng.IntN(m.Slow)), Work: UpTo(rng, m.SlowWork), Body: body}
	case tier < m.SlowShare+m.HotShare:
		return Job{Key: fmt.Sprintf("hot-%d", rng.IntN(m.Hot)), Work: UpTo(rng, m.Work), Body: body}
	case tier < m.SlowShare+m.HotShare+m.LeftShare:
		j := Job{Key: fmt.Sprintf("left-%d", rng.IntN(m.Left)), Work: UpTo(rng, m.Work), Body: body}
		if rng.IntN(2) == 0 {
			j.Work, j.stay, j.limit = UpTo(rng, m.WindUp), UpTo(rng, m.Stay), m.LeaveLimit
		}
		return j
	case long:
		return Job{Key: fmt.Sprintf("key-%d", rng.IntN(m.Keys)), Work: UpTo(rng, m.Long), Body: body}
	}
	return Job{Key: fmt.Sprintf("key-%d", rng.IntN(m.Keys)), Work: UpTo(rng, m.Work), Body: body}
}

// UpTo returns a time from 0 to d.
func UpTo(rng *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(d) + 1))
}

// Request is what a client has seen of its request.
type Request struct {
	Number int64
	Key    string
	Work   time.Duration
	Limit  time.Duration // see job
	Send   time.Duration // by the observer's clock
	Recv   time.Duration // zero while it is under way
	Status int           // zero if there was no answer
	Note   string        // why, unless 200
	Value  int64
	Token  int64
}

// OK reports whether the answer was 200.
func (r *Request) OK() bool { return r.Status == http.StatusOK }

// Left reports whether the client leaves the request before the end of its answer, while the app works.
func (r *Request) Left() bool { return r.Limit > 0 }

// Took returns how long the client waited.
func (r *Request) Took() time.Duration { return r.Recv - r.Send }

// patience is how long a client waits for an answer: much longer than a router
// holds a request and a paused worker stays paused.
const patience = 90 * time.Second

// Load is a number of clients, each of which sends a request when it has the
// answer to the one before. For a client that waits for long another one steps
// in, so that the load goes on where it can.
type Load struct {
	Dial    Dialer
	First   int64 // number before that of the first request; requests of all loads have different ones
	Now     func() time.Duration
	Clients int
	Same    bool                                         // a client that steps in goes on with the jobs of the one that waits
	Jobs    func(client int) func() (Job, time.Duration) // the next job, and how long to think before it
	Retry   time.Duration                                // to think at most after a failed request, and twice as long after each further one; 0: as always

	http    *http.Client
	h2      *http.Client // HTTP/2, for requests that the client leaves
	running sync.WaitGroup
	numbers atomic.Int64
	Done    atomic.Int64
	Failed  atomic.Int64
	Pending atomic.Int64
	oldest  sync.Map // of *request, under way

	mu      sync.Mutex
	next    int // number of the next client
	history []*Request
}

const (
	longWait = 2 * time.Second // after which another client steps in
	maxCrowd = 4               // requests under way, in multiples of the clients
)

// Dialer connects a client to a router.
type Dialer func(ctx context.Context) (net.Conn, error)

// To returns what dials addr.
func To(addr string) Dialer {
	return func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", addr) }
}

// Run goes on until ctx ends and the last answer is there.
func (l *Load) Run(ctx context.Context) {
	defer l.open()()
	for range l.Clients {
		l.add(ctx, nil)
	}
	l.running.Wait()
}

// open makes the HTTP clients, whose connections the returned function closes.
func (l *Load) open() (closes func()) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return l.Dial(ctx) }
	transport := &http.Transport{MaxIdleConnsPerHost: l.Clients, MaxIdleConns: 2 * l.Clients, DisableCompression: true, DialContext: dial}
	h2 := &http.Transport{DisableCompression: true, DialContext: dial, Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	l.http, l.h2 = &http.Client{Transport: transport}, &http.Client{Transport: h2}
	return func() {
		transport.CloseIdleConnections()
		h2.CloseIdleConnections()
	}
}

// add starts one more client. With Same it goes on with the jobs of next.
func (l *Load) add(ctx context.Context, next func() (Job, time.Duration)) {
	if next == nil || !l.Same {
		l.mu.Lock()
		next = l.Jobs(l.next)
		l.next++
		l.mu.Unlock()
	}
	l.running.Go(func() { l.client(ctx, next) })
}

func (l *Load) client(ctx context.Context, next func() (Job, time.Duration)) {
	retry := l.Retry
	for replaced, ok := false, true; !replaced; {
		j, think := next()
		if ok {
			retry = l.Retry
		} else if retry > 0 {
			think = min(think, retry)
			retry = min(2*retry, time.Minute)
		}
		if !Sleep(ctx, think) {
			return
		}
		replaced, ok = l.request(ctx, j, next)
	}
}

// request sends one request and reports whether another client has stepped in meanwhile, and whether
// the request succeeded.
func (l *Load) request(ctx context.Context, j Job, next func() (Job, time.Duration)) (replaced, ok bool) {
	r := &Request{Number: l.First + l.numbers.Add(1), Key: j.Key, Work: j.Work, Limit: j.limit}
	l.mu.Lock()
	l.history = append(l.history, r)
	l.mu.Unlock()
	l.Pending.Add(1)
	l.oldest.Store(r.Number, l.Now())

	answered := make(chan struct{})
	go func() { defer close(answered); l.send(r, j) }()
	long := time.NewTimer(longWait)
	defer long.Stop()
	select {
	case <-answered:
	case <-long.C:
		if replaced = l.Pending.Load() < int64(maxCrowd*l.Clients) && ctx.Err() == nil; replaced {
			l.add(ctx, next)
		}
		<-answered
	}
	l.oldest.Delete(r.Number)
	l.Pending.Add(-1)
	l.Done.Add(1)
	if !r.OK() && !r.Left() {
		l.Failed.Add(1)
	}
	return replaced, r.OK() || r.Left()
}

// Send sends a request by itself, and returns what came of it.
func (l *Load) Send(ctx context.Context, j Job) *Request {
	defer l.open()()
	l.request(ctx, j, nil)
	return l.history[len(l.history)-1]
}

func (l *Load) send(r *Request, j Job) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r.Send = l.Now()
	var err error
	if r.Left() {
		err = l.leave(ctx, r, j.stay)
	} else {
		err = l.ask(ctx, r, j.Body)
	}
	r.Recv = l.Now()
	if err != nil {
		r.Status, r.Note = 0, err.Error()
	}
}

// ask sends a request and reads its answer.
func (l *Load) ask(ctx context.Context, r *Request, length int) error {
	method, body := http.MethodGet, io.Reader(nil)
	if length > 0 {
		method, body = http.MethodPost, bytes.NewReader(make([]byte, length))
	}
	res, err := r.do(ctx, l.http, method, body)
	if err != nil {
		return err
	}
	return r.read(res)
}

// leave sends a request whose answer has no end, reads what comes of it for a while, and leaves it.
func (l *Load) leave(ctx context.Context, r *Request, stay time.Duration) error {
	client := l.http
	if r.Number%2 == 0 {
		client = l.h2
	}
	res, err := r.do(ctx, client, http.MethodGet, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close() // which ends an HTTP/2 stream or the connection
	if res.StatusCode != http.StatusOK {
		return r.read(res)
	}
	until := time.Now().Add(stay)
	for in := bufio.NewReader(res.Body); time.Now().Before(until); {
		if _, err := in.ReadString('\n'); err != nil {
			return err
		}
	}
	return nil
}

// do sends the request with what the app has to know.
func (r *Request) do(ctx context.Context, client *http.Client, method string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://keyway/count", body)
	if err != nil {
		return nil, err
	}
	req.Header = http.Header{HeaderKey: {r.Key}, headerRequest: {fmt.Sprint(r.Number)}, headerWork: {r.Work.String()}, headerLimit: {r.Limit.String()}}
	return client.Do(req)
}

// read reads the answer in full.
func (r *Request) read(res *http.Response) error {
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 4<<10))
	if err != nil {
		return fmt.Errorf("the answer %d broke off: %w", res.StatusCode, err)
	}
	r.Status = res.StatusCode
	if r.OK() {
		if _, err := fmt.Sscanf(string(body), "%d %d", &r.Value, &r.Token); err != nil {
			return errors.Join(fmt.Errorf("the answer is %q", body), err)
		}
	} else {
		r.Note = strings.TrimSpace(string(body))
	}
	return nil
}

// Longest returns how long the oldest request under way has been waiting.
func (l *Load) Longest() time.Duration {
	now, longest := l.Now(), time.Duration(0)
	l.oldest.Range(func(_, since any) bool {
		longest = max(longest, now-since.(time.Duration))
		return true
	})
	return longest
}

// Requests returns the history of all clients; run has returned.
func (l *Load) Requests() []*Request { return l.history }

const (
	warmKeys     = 200
	warmPatience = 60 * time.Second
)

// WarmUp sends requests for keys of their own until all of them are answered,
// and gives up after a minute.
func WarmUp(ctx context.Context, dial Dialer) error {
	ctx, cancel := context.WithTimeout(ctx, warmPatience)
	defer cancel()
	l := &Load{Dial: dial}
	defer l.open()()
	for i := range warmKeys {
		r := &Request{Number: int64(-i - 1), Key: fmt.Sprint("warm", i)}
		for {
			err := l.ask(ctx, r, 0)
			if err == nil && r.OK() {
				break
			}
			if !Sleep(ctx, 50*time.Millisecond) {
				return fmt.Errorf("the cluster does not answer: status %d %s: %w", r.Status, r.Note, errors.Join(ctx.Err(), err))
			}
		}
	}
	return nil
}
