// Command client sends requests to routers while their cluster is changed
// under it, until SIGTERM. Each second it prints a line in JSON, a [Second].
//
// It does what a load balancer does: when no connection to a router can be made
// it takes the next one. Nothing else is repeated, so each request that fails
// is one that a user's client would have seen.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Second is what the answers of a second were.
type Second struct {
	OK      int            `json:"ok"`
	Failed  map[string]int `json:"failed,omitempty"` // by what came instead of an answer of the app
	Longest int64          `json:"longest_ms"`
}

const (
	dialTimeout    = time.Second
	requestTimeout = 40 * time.Second
	attempts       = 20 // to connect, over all routers
	keysOfEach     = 8
	clients        = 16 // which send a request at a time
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
}

func run() error {
	routers := flag.String("routers", "", "URLs of the routers, separated by commas")
	rate := flag.Int("rate", 150, "requests a second")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if *routers == "" || *rate < 1 {
		return errors.New("want -routers URL,…, and a -rate of 1 at least")
	}
	t := &tally{second: Second{Failed: make(map[string]int)}}
	pace := make(chan struct{})
	var running sync.WaitGroup
	for i := range clients {
		c := newClient(i, strings.Split(*routers, ","), t)
		running.Go(func() { c.run(pace) })
	}
	ticks := time.NewTicker(time.Second / time.Duration(*rate))
	seconds := time.NewTicker(time.Second)
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-ticks.C:
			select {
			case pace <- struct{}{}:
			default: // all are busy
			}
		case <-seconds.C:
			t.print()
		}
	}
	close(pace)
	running.Wait()
	t.print()
	return nil
}

// tally counts answers.
type tally struct {
	mu     sync.Mutex
	second Second
}

func (t *tally) add(took time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.second.Longest = max(t.second.Longest, took.Milliseconds())
	if err != nil {
		t.second.Failed[err.Error()]++
	} else {
		t.second.OK++
	}
}

func (t *tally) print() {
	t.mu.Lock()
	defer t.mu.Unlock()
	_ = json.NewEncoder(os.Stdout).Encode(t.second) // fails if nobody reads it any more
	t.second = Second{Failed: make(map[string]int)}
}

// client sends one request at a time, for keys that no other one has, so that
// the tokens that it gets for each have to go up.
type client struct {
	id      int
	routers []string
	http    *http.Client
	tally   *tally
	tokens  map[string]int64
	sent    int
}

func newClient(id int, routers []string, t *tally) *client {
	transport := &http.Transport{DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext}
	return &client{id, routers, &http.Client{Transport: transport, Timeout: requestTimeout}, t, make(map[string]int64), 0}
}

// isUnsent reports whether no connection could be made, so that nothing was sent.
func isUnsent(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

func (c *client) run(pace <-chan struct{}) {
	for range pace {
		began := time.Now()
		err := c.request()
		c.tally.add(time.Since(began), err)
		c.sent++
	}
}

// request sends a GET or a POST with a body. Its error has no addresses, so
// that equal ones are counted together.
func (c *client) request() error {
	key := fmt.Sprintf("client-%d-key-%d", c.id, c.sent%keysOfEach)
	for attempt := range attempts {
		err := c.requestOf(key, c.routers[(c.id+c.sent+attempt)%len(c.routers)])
		if !isUnsent(err) {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return errors.New("no router takes connections")
}

func (c *client) requestOf(key, router string) error {
	method, body := http.MethodGet, []byte(nil)
	if c.sent%2 == 1 {
		method, body = http.MethodPost, []byte(`{"buy":1}`)
	}
	r, err := http.NewRequest(method, router, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("X-Key", key)
	answer, err := c.http.Do(r)
	if err != nil {
		if isUnsent(err) {
			return err
		}
		return fmt.Errorf("%s without an answer: %T", method, rootOf(err))
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return fmt.Errorf("%s with half an answer: %T", method, rootOf(err))
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %d %.200s", method, answer.StatusCode, bytes.TrimSpace(text))
	}
	var said struct{ Token int64 }
	if err := json.Unmarshal(text, &said); err != nil {
		return fmt.Errorf("%s with an answer that is not the app's", method)
	}
	if said.Token <= c.tokens[key] {
		return errors.New("a token that has not risen")
	}
	c.tokens[key] = said.Token
	return nil
}

// rootOf returns the innermost error.
func rootOf(err error) error {
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return err
}
