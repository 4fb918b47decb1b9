package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Headers between the clients and the app.
const (
	headerKey     = "X-Key"
	headerRequest = "X-Request" // the request's number
	headerWork    = "X-Work"    // how long the app works on it, or goes on when the client has left
	headerWay     = "X-Way"     // a way, if the client leaves
	headerLimit   = "X-Limit"   // how long the app works at most until it takes the client for gone
)

// observer is the app behind every worker, and the judge of them all: it sees
// every execution begin and end, whichever worker it comes from, by its own
// clock. Its work is to count the executions of each key, by reading, waiting
// and writing with nothing to protect it: that is what Keyway is for.
//
// It is a resource that fences, too: an execution whose token is not higher
// than the highest one of its key is recorded, and refused.
type observer struct {
	start time.Time

	mu       sync.Mutex
	keys     map[string]*counter
	requests map[int64]*execution // by number; the first one
	running  int
	total    int
	findings []finding

	servers []*http.Server // guarded by mu
	serving sync.WaitGroup
}

// counter is a key's state. Its value is protected by no more than single
// reads and writes are.
type counter struct {
	value   int64
	highest int64 // token
	running []*execution
	history []*execution
}

// execution is one run of the app.
type execution struct {
	Request   int64
	Key       string
	Worker    string // the process that sent it
	Token     int64
	Partition int
	Begin     time.Duration // since the observer's start
	End       time.Duration // zero while it runs
	Value     int64         // what it wrote
	Outcome   outcome
}

type outcome uint8

const (
	running outcome = iota
	written         // the count was written; the answer may still have been lost
	aborted         // its connection closed while it worked
	fenced          // refused for its token
)

func (o outcome) String() string {
	return [...]string{"running", "written", "aborted", "fenced"}[o]
}

// finding is something that must not be.
type finding struct {
	Kind   findingKind
	Key    string
	At     time.Duration
	Detail string
	Late   *execution // the execution at fault, for those that can be excused
}

type findingKind uint8

const (
	overlap    findingKind = iota // two executions of a key at once
	regression                    // a token not higher than the highest one of its key
	lostUpdate                    // the count was changed between read and write
	repeated                      // a request was executed twice
	mixedUp                       // the worker's headers do not fit the request
	kinds
)

func (k findingKind) String() string {
	return [...]string{"overlap", "token regression", "lost update", "request executed twice", "wrong header"}[k]
}

// maxFindings bounds what is kept of a cluster that is thoroughly broken.
const maxFindings = 1000

func newObserver() *observer {
	return &observer{start: time.Now(), keys: make(map[string]*counter), requests: make(map[int64]*execution)}
}

func (o *observer) now() time.Duration { return time.Since(o.start) }

// listen starts a listener of its own for a worker, by which its executions
// are known.
func (o *observer) listen(worker string) (url string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	s := &http.Server{Handler: o.app(worker)}
	o.mu.Lock()
	o.servers = append(o.servers, s)
	o.mu.Unlock()
	o.serving.Go(func() { _ = s.Serve(l) }) // ends with close
	return "http://" + l.Addr().String(), nil
}

func (o *observer) close() {
	o.mu.Lock()
	servers := o.servers
	o.mu.Unlock()
	for _, s := range servers {
		_ = s.Close()
	}
	o.serving.Wait()
}

// app serves the requests that worker sends.
func (o *observer) app(worker string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if how, _ := strconv.Atoi(r.Header.Get(headerWay)); way(how) != toTheEnd {
			o.serveLeft(worker, way(how), w, r)
			return
		}
		// The server watches the connection once the body is read.
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			http.Error(w, "the body broke off", http.StatusBadRequest)
			return
		}
		x, work, err := parse(worker, r)
		if err != nil {
			o.report(finding{mixedUp, x.Key, o.now(), err.Error(), nil})
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		read, ok := o.begin(x)
		if !ok {
			http.Error(w, "the token is too low", http.StatusConflict)
			return
		}
		if !sleep(r.Context(), work) {
			o.end(x, aborted)
			return
		}
		o.write(x, read)
		o.end(x, written)
		fmt.Fprintf(w, "%d %d", x.Value, x.Token)
	})
}

func parse(worker string, r *http.Request) (x *execution, work time.Duration, err error) {
	x = &execution{Worker: worker, Key: r.Header.Get(headerKey)}
	key, err := url.PathUnescape(r.Header.Get("Keyway-Key"))
	if err != nil || key != x.Key {
		return x, 0, fmt.Errorf("Keyway-Key is %q, the client's key %q", r.Header.Get("Keyway-Key"), x.Key)
	}
	if x.Token, err = strconv.ParseInt(r.Header.Get("Keyway-Token"), 10, 64); err != nil {
		return x, 0, fmt.Errorf("Keyway-Token: %w", err)
	}
	if x.Partition, err = strconv.Atoi(r.Header.Get("Keyway-Partition")); err != nil {
		return x, 0, fmt.Errorf("Keyway-Partition: %w", err)
	}
	if x.Request, err = strconv.ParseInt(r.Header.Get(headerRequest), 10, 64); err != nil {
		return x, 0, fmt.Errorf("%s: %w", headerRequest, err)
	}
	work, err = time.ParseDuration(r.Header.Get(headerWork))
	return x, work, err
}

// sleep returns false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// begin records an execution's begin and returns the count that it reads, and
// false if its token is too low.
func (o *observer) begin(x *execution) (read int64, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	x.Begin = o.now()
	c := o.keys[x.Key]
	if c == nil {
		c = new(counter)
		o.keys[x.Key] = c
	}
	c.history = append(c.history, x)
	o.total++
	if first := o.requests[x.Request]; first != nil {
		o.found(repeated, x, "request %d, before at %s", x.Request, first)
	} else {
		o.requests[x.Request] = x
	}
	for _, other := range c.running {
		o.found(overlap, x, "%s runs while %s", x, other)
	}
	if x.Token <= c.highest {
		o.found(regression, x, "%s, but %d has begun", x, c.highest)
		x.End, x.Outcome = x.Begin, fenced
		return 0, false
	}
	c.highest = x.Token
	c.running = append(c.running, x)
	o.running++
	return c.value, true
}

// write is the second half of the app's work; read is what the first half
// found.
func (o *observer) write(x *execution, read int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.keys[x.Key]
	if c.value != read {
		o.found(lostUpdate, x, "%s read %d, found %d", x, read, c.value)
	}
	c.value = read + 1
	x.Value = c.value
}

func (o *observer) end(x *execution, how outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.keys[x.Key]
	c.running = slices.DeleteFunc(c.running, func(other *execution) bool { return other == x })
	o.running--
	x.End, x.Outcome = o.now(), how
}

func (o *observer) report(f finding) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.add(f)
}

func (o *observer) found(k findingKind, x *execution, format string, args ...any) {
	o.add(finding{k, x.Key, x.Begin, fmt.Sprintf(format, args...), x})
}

func (o *observer) add(f finding) {
	if len(o.findings) < maxFindings {
		o.findings = append(o.findings, f)
	}
}

func (x *execution) String() string {
	return fmt.Sprintf("request %d at %s with token %d", x.Request, x.Worker, x.Token)
}

// counts returns how many executions there were and how many run, and what was
// found so far.
func (o *observer) counts() (total, running int, found [kinds]int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, f := range o.findings {
		found[f.Kind]++
	}
	return o.total, o.running, found
}

// record is what the observer has seen; nothing runs any more.
type record struct {
	keys     map[string]*counter
	requests map[int64]*execution
	findings []finding
}

func (o *observer) record() record {
	o.mu.Lock()
	defer o.mu.Unlock()
	return record{o.keys, o.requests, o.findings}
}

// serveLeft serves a request whose client leaves: it works from the request's
// head on until it notices that its connection has closed or the limit is
// over, goes on for a while, and writes. A connection that closes does not
// stop it at once: an app has a grace for that, and the key stays its own.
func (o *observer) serveLeft(worker string, how way, w http.ResponseWriter, r *http.Request) {
	x, windUp, err := parse(worker, r)
	var limit time.Duration
	if err == nil {
		limit, err = time.ParseDuration(r.Header.Get(headerLimit))
	}
	if err != nil {
		o.report(finding{mixedUp, x.Key, o.now(), err.Error(), nil})
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	read, ok := o.begin(x)
	if !ok {
		http.Error(w, "the token is too low", http.StatusConflict)
		return
	}
	until := time.Now().Add(limit)
	finish := func() {
		time.Sleep(windUp)
		o.write(x, read)
		o.end(x, written)
	}
	switch how {
	case upload, uploadH2:
		_ = http.NewResponseController(w).SetReadDeadline(until)
		_, _ = io.Copy(io.Discard, r.Body)
		finish()
		fmt.Fprintf(w, "%d %d", x.Value, x.Token)
	case tunnel:
		finish() // its key is free from the answer's head on
		c, in, err := http.NewResponseController(w).Hijack()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer c.Close()
		_ = c.SetDeadline(until)
		if _, err := io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"); err == nil {
			_, _ = io.Copy(c, in)
		}
	default:
		w.Header().Set("Content-Type", "text/plain") // which holds its key to the end
		for time.Now().Before(until) && r.Context().Err() == nil {
			if _, err := io.WriteString(w, "data: tick\n\n"); err != nil {
				break
			}
			if err := http.NewResponseController(w).Flush(); err != nil {
				break
			}
			sleep(r.Context(), 10*time.Millisecond)
		}
		finish()
	}
}
