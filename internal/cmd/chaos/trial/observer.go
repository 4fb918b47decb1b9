// Package trial has what every trial of Keyway's promises has in common: the
// cluster ([Site]) with its [Store] and programs ([Program]), the app that sees
// and judges each execution ([Observer]), the clients ([Load]), what they ask
// for ([Mix]), the faults ([Kind]) and when they come ([Plan]), the check of
// what clients and app have seen ([Operations], [Linearizable]), and all of it
// together ([Trial], [Report]).
package trial

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
	HeaderKey     = "X-Key"
	headerRequest = "X-Request" // the request's number
	headerWork    = "X-Work"    // how long the app works on it, or goes on when the client has left
	headerLimit   = "X-Limit"   // how long the app works at most until it takes the client for gone; 0s if that stays
)

// Observer is the app behind every worker, and the judge of them all: it sees
// every execution begin and end, whichever worker it comes from, by its own
// clock. Its work is to count the executions of each key, by reading, waiting
// and writing with nothing to protect it: that is what Keyway is for.
//
// It is a resource that fences, too: an execution whose token is not higher
// than the highest one of its key is recorded, and refused.
type Observer struct {
	Start time.Time

	mu       sync.Mutex
	keys     map[string]*Counter
	requests map[int64]*Execution // by number; the first one
	running  int
	total    int
	findings []Finding

	servers []*http.Server // guarded by mu
	serving sync.WaitGroup
}

// Counter is a key's state. Its value is protected by no more than single
// reads and writes are.
type Counter struct {
	value   int64
	highest int64 // token
	running []*Execution
	History []*Execution
}

// Execution is one run of the app.
type Execution struct {
	Request   int64
	Key       string
	Worker    string // the process that sent it
	Token     int64
	Partition int
	Begin     time.Duration // since the observer's start
	End       time.Duration // zero while it runs
	Value     int64         // what it wrote
	Outcome   Outcome
}

// Outcome is how an execution ended.
type Outcome uint8

// The outcomes.
const (
	running Outcome = iota
	Written         // the count was written; the answer may still have been lost
	aborted         // its connection closed while it worked
	Fenced          // refused for its token
)

func (o Outcome) String() string {
	return [...]string{"running", "written", "aborted", "fenced"}[o]
}

// Finding is something that must not be.
type Finding struct {
	Kind   FindingKind
	Key    string
	At     time.Duration
	Detail string
	Late   *Execution // the execution at fault, for those that can be excused
}

// FindingKind is what must not be.
type FindingKind uint8

// The kinds of findings, and how many there are.
const (
	Overlap    FindingKind = iota // two executions of a key at once
	Regression                    // a token not higher than the highest one of its key
	LostUpdate                    // the count was changed between read and write
	repeated                      // a request was executed twice
	MixedUp                       // the worker's headers do not fit the request
	Kinds
)

func (k FindingKind) String() string {
	return [...]string{"overlap", "token regression", "lost update", "request executed twice", "wrong header"}[k]
}

// maxFindings bounds what is kept of a cluster that is thoroughly broken.
const maxFindings = 1000

// NewObserver returns an observer whose clock starts now.
func NewObserver() *Observer {
	return &Observer{Start: time.Now(), keys: make(map[string]*Counter), requests: make(map[int64]*Execution)}
}

// Now returns the time since Start.
func (o *Observer) Now() time.Duration { return time.Since(o.Start) }

// Listen starts a listener of its own for a worker, by which its executions
// are known, and returns its URL as --upstream takes it.
func (o *Observer) Listen(worker, network, addr string) (url string, err error) {
	l, err := net.Listen(network, addr)
	if err != nil {
		return "", err
	}
	s := &http.Server{Handler: o.App(worker)}
	o.mu.Lock()
	o.servers = append(o.servers, s)
	o.mu.Unlock()
	o.serving.Go(func() { _ = s.Serve(l) }) // ends with close
	if network == "unix" {
		return "unix://" + addr, nil
	}
	return "http://" + l.Addr().String(), nil
}

// Close ends all listeners and their connections.
func (o *Observer) Close() {
	o.mu.Lock()
	servers := o.servers
	o.mu.Unlock()
	for _, s := range servers {
		_ = s.Close()
	}
	o.serving.Wait()
}

// App serves the requests that worker sends.
func (o *Observer) App(worker string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil { // the server watches the connection once it is read
			http.Error(w, "the body broke off", http.StatusBadRequest)
			return
		}
		x, work, err := parse(worker, r)
		if err != nil {
			o.report(Finding{MixedUp, x.Key, o.Now(), err.Error(), nil})
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		limit, _ := time.ParseDuration(r.Header.Get(headerLimit))
		read, ok := o.begin(x)
		finish := func() {
			o.write(x, read)
			o.end(x, Written)
		}
		switch {
		case !ok:
			http.Error(w, "the token is too low", http.StatusConflict)
		case limit > 0:
			untilLeft(w, r, limit)
			time.Sleep(work)
			finish()
		case !Sleep(r.Context(), work):
			o.end(x, aborted)
		default:
			finish()
			fmt.Fprintf(w, "%d %d", x.Value, x.Token)
		}
	})
}

func parse(worker string, r *http.Request) (x *Execution, work time.Duration, err error) {
	x = &Execution{Worker: worker, Key: r.Header.Get(HeaderKey)}
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

// Sleep returns false when ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
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
func (o *Observer) begin(x *Execution) (read int64, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	x.Begin = o.Now()
	c := o.keys[x.Key]
	if c == nil {
		c = new(Counter)
		o.keys[x.Key] = c
	}
	c.History = append(c.History, x)
	o.total++
	if first := o.requests[x.Request]; first != nil {
		o.found(repeated, x, "request %d, before at %s", x.Request, first)
	} else {
		o.requests[x.Request] = x
	}
	for _, other := range c.running {
		o.found(Overlap, x, "%s runs while %s", x, other)
	}
	if x.Token <= c.highest {
		o.found(Regression, x, "%s, but %d has begun", x, c.highest)
		x.End, x.Outcome = x.Begin, Fenced
		return 0, false
	}
	c.highest = x.Token
	c.running = append(c.running, x)
	o.running++
	return c.value, true
}

// write is the second half of the app's work; read is what the first half
// found.
func (o *Observer) write(x *Execution, read int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.keys[x.Key]
	if c.value != read {
		o.found(LostUpdate, x, "%s read %d, found %d", x, read, c.value)
	}
	c.value = read + 1
	x.Value = c.value
}

func (o *Observer) end(x *Execution, how Outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.keys[x.Key]
	c.running = slices.DeleteFunc(c.running, func(other *Execution) bool { return other == x })
	o.running--
	x.End, x.Outcome = o.Now(), how
}

func (o *Observer) report(f Finding) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.add(f)
}

func (o *Observer) found(k FindingKind, x *Execution, format string, args ...any) {
	o.add(Finding{k, x.Key, x.Begin, fmt.Sprintf(format, args...), x})
}

func (o *Observer) add(f Finding) {
	if len(o.findings) < maxFindings {
		o.findings = append(o.findings, f)
	}
}

func (x *Execution) String() string {
	return fmt.Sprintf("request %d at %s with token %d", x.Request, x.Worker, x.Token)
}

// Counts returns how many executions there were and how many run, and what was
// found so far.
func (o *Observer) Counts() (total, running int, found [Kinds]int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, f := range o.findings {
		found[f.Kind]++
	}
	return o.total, o.running, found
}

// Record is what the observer has seen; nothing runs any more.
type Record struct {
	Keys     map[string]*Counter
	Requests map[int64]*Execution
	Findings []Finding
}

// Record returns what was seen; it is whole once everything has ended.
func (o *Observer) Record() Record {
	o.mu.Lock()
	defer o.mu.Unlock()
	return Record{o.keys, o.requests, o.findings}
}

// untilLeft sends an answer without end until it notices that its connection has closed, or for limit at most. An app has a
// grace to go on after that, and the key stays its own.
func untilLeft(w http.ResponseWriter, r *http.Request, limit time.Duration) {
	w.Header().Set("Content-Type", "text/plain") // which holds its key to the end
	control := http.NewResponseController(w)
	for until := time.Now().Add(limit); time.Now().Before(until) && r.Context().Err() == nil; Sleep(r.Context(), 10*time.Millisecond) {
		if _, err := io.WriteString(w, "data: tick\n\n"); err != nil || control.Flush() != nil {
			return
		}
	}
}
