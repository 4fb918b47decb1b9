package conformance

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

var (
	all      = flag.Bool("stacks", false, "try all stacks instead of two, and tell how far it is")
	requests = flag.Int("requests", 1500, "how many requests each stack gets")
	seed     = flag.Uint64("seed", 30, "what the requests are generated from")
)

// differentialRoutes take keys from each place that apps read in a way of their own.
const differentialRoutes = `routes:
  - {name: orders, match: {path: "/orders/{order}/"}, key: path:order, prefix: "order:"}
  - {name: nums, match: {path: "/nums/{n:int}"}, key: path:n, prefix: "num:"}
  - {name: room, match: {path: /room}, key: query:room, prefix: "room:"}
  - {name: cart, match: {path: /cart}, key: cookie:cart, prefix: "cart:"}
  - {name: owner, match: {path: /owner}, key: header:X-Owner, prefix: "owner:"}
  - {name: account, match: {path: /account}, key: json:/account/id, prefix: "account:"}
  - {name: pay, match: {methods: [POST], path: "/pay/{p}"}, key: path:p, prefix: "pay:"}
  - {name: rest, without-key: any}
`

// newRouted starts a router with routes, and a worker with its demo app or in front of
// an app.
func newRouted(t *testing.T, routes, app string) (router, workerAdmin string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "routes.yaml")
	if err := os.WriteFile(file, []byte(routes), 0o600); err != nil {
		t.Fatal(err)
	}
	router, _, gossip := start(t, "router", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--new-cluster", "--routes", file)
	worker := []string{"--listen", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--join", gossip, "--admin", "127.0.0.1:0", "--name", "w1"}
	if app != "" {
		worker = append(worker, "--upstream", app)
	}
	_, workerAdmin, _ = start(t, "worker", worker...)
	return router, workerAdmin
}

// answer is what became of a request.
type answer struct {
	status int // 0 if the connection was closed instead
	header http.Header
	body   string
}

// refused reports whether the app has not seen the request, or could not read it.
func (a *answer) refused() bool { return a.header.Get("X-App") == "" }

// asker sends requests over connections that it keeps.
type asker struct {
	addr string
	h1   net.Conn
	in   *bufio.Reader
	h2   *framed
}

func (c *asker) ask(r request) answer {
	if r.http2 {
		return c.askHTTP2(r)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", r.method, r.target, cmp.Or(r.host, "a"))
	for _, f := range r.fields {
		fmt.Fprintf(&b, "%s\r\n", f)
	}
	if r.body != "" {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(r.body))
	}
	lines := strings.ContainsAny(r.method+r.target+strings.Join(r.fields, ""), "\r\n") // it may be several requests
	for attempt := 0; ; attempt++ {
		fresh := c.h1 == nil || lines
		if fresh {
			c.dial()
		}
		_ = c.h1.SetDeadline(time.Now().Add(settled))
		_, err := fmt.Fprintf(c.h1, "%s\r\n%s", b.Bytes(), r.body)
		var a answer
		if err == nil || fresh { // a refusal may come before all is sent
			a, err = c.read(r.method)
		}
		if err != nil || lines {
			c.hangUp()
		}
		if err == nil || fresh {
			return a
		}
	}
}

func (c *asker) hangUp() {
	if c.h1 != nil {
		c.h1.Close()
		c.h1 = nil
	}
}

func (c *asker) dial() {
	c.hangUp()
	conn, err := net.Dial("tcp", c.addr)
	if err != nil {
		panic(err) // there is no router
	}
	c.h1, c.in = conn, bufio.NewReader(conn)
}

func (c *asker) read(method string) (answer, error) {
	for {
		res, err := http.ReadResponse(c.in, &http.Request{Method: method})
		if err != nil {
			return answer{}, err
		}
		body, _ := io.ReadAll(res.Body) // what has come of an answer that breaks off is judged, too
		if res.StatusCode == http.StatusContinue {
			continue
		}
		if res.Close {
			c.hangUp()
		}
		return answer{res.StatusCode, res.Header, string(body)}, nil
	}
}

// framed is a connection of HTTP/2.
type framed struct {
	conn   net.Conn
	framer *http2.Framer
	enc    *hpack.Encoder
	out    bytes.Buffer
	next   uint32
}

func (c *asker) askHTTP2(r request) answer {
	for attempt := 0; ; attempt++ {
		fresh := c.h2 == nil
		if fresh {
			c.dialHTTP2()
		}
		a, err := c.h2.ask(r)
		if err == nil {
			return a
		}
		c.h2.conn.Close()
		c.h2 = nil
		if fresh {
			return answer{}
		}
	}
}

func (c *asker) dialHTTP2() {
	conn, err := net.Dial("tcp", c.addr)
	if err != nil {
		panic(err)
	}
	f := &framed{conn: conn, next: 1, framer: http2.NewFramer(conn, bufio.NewReader(conn))}
	f.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	f.enc = hpack.NewEncoder(&f.out)
	_, _ = io.WriteString(conn, http2.ClientPreface)
	_ = f.framer.WriteSettings()
	_ = f.framer.WriteWindowUpdate(0, 1<<30)
	c.h2 = f
}

var errAgain = errors.New("the connection ends before the request")

func (f *framed) ask(r request) (a answer, err error) {
	id := f.next
	f.next += 2
	f.out.Reset()
	write := func(name, value string) { _ = f.enc.WriteField(hpack.HeaderField{Name: name, Value: value}) }
	write(":method", r.method)
	write(":scheme", "http")
	write(":authority", cmp.Or(r.host, "a"))
	write(":path", r.target)
	for _, field := range r.fields {
		name, value, _ := strings.Cut(field, ":")
		write(strings.ToLower(name), strings.TrimPrefix(value, " "))
	}
	_ = f.conn.SetDeadline(time.Now().Add(settled))
	if err = f.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: f.out.Bytes(), EndStream: r.body == "", EndHeaders: true}); err != nil {
		return a, err
	}
	if r.body != "" {
		if err = f.framer.WriteData(id, true, []byte(r.body)); err != nil {
			return a, err
		}
	}
	for {
		frame, err := f.framer.ReadFrame()
		if err != nil {
			return a, err
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = f.framer.WriteSettingsAck()
			}
		case *http2.PingFrame:
			_ = f.framer.WritePing(true, frame.Data)
		case *http2.GoAwayFrame:
			if frame.LastStreamID < id {
				return a, errAgain
			}
		case *http2.RSTStreamFrame:
			if frame.StreamID == id {
				return a, nil // of a complete answer, or none
			}
		case *http2.MetaHeadersFrame:
			if frame.StreamID != id || frame.PseudoValue("status") == "100" {
				continue
			}
			a.status, _ = strconv.Atoi(frame.PseudoValue("status"))
			a.header = make(http.Header)
			for _, field := range frame.RegularFields() {
				a.header.Add(field.Name, field.Value)
			}
			if frame.StreamEnded() {
				return a, nil
			}
		case *http2.DataFrame:
			if frame.StreamID == id {
				a.body += string(frame.Data())
				if frame.StreamEnded() {
					return a, nil
				}
			}
		}
	}
}

// tally is what became of the requests to a stack.
type tally struct {
	sent, refused, passed, keyed, failed int
	wrong                                []request
}

// keyOf returns the key that a request ran under.
func keyOf(a answer) string { return unescaped(a.header.Get("X-Key"), url.PathUnescape) }

// differs reports whether the app worked on something else than the key.
func (s *stack) differs(a answer) bool {
	resource := s.resource(a.header)
	return !a.refused() && resource != "" && resource != keyOf(a)
}

// try sends n requests to the stack behind the router at addr, in rounds, of which each
// begins with what has passed so far.
func (s *stack) try(t *testing.T, addr string, n int) (sum tally) {
	const askers, round = 8, 250
	rnd := rand.New(rand.NewPCG(*seed, 0))
	var passed []request
	connections := make([]asker, askers)
	for i := range connections {
		connections[i].addr = addr
	}
	for sum.sent < n {
		list, answers := make([]request, min(round, n-sum.sent)), make([]answer, round)
		for i := range list {
			if known := sum.sent + i; known < len(knownRequests) {
				list[i] = knownRequests[known]
			} else {
				list[i] = generate(rnd, passed)
			}
		}
		var next atomic.Int64
		var wait sync.WaitGroup
		for i := range connections {
			wait.Go(func() {
				for i64 := next.Add(1) - 1; int(i64) < len(list); i64 = next.Add(1) - 1 {
					answers[i64] = connections[i].ask(list[i64])
				}
			})
		}
		wait.Wait()
		for i, r := range list {
			a := answers[i]
			sum.sent++
			switch {
			case a.refused():
				sum.refused++
				if a.status >= 500 && a.status != http.StatusNotImplemented {
					sum.failed++
				}
				continue
			case s.differs(a):
				sum.wrong = append(sum.wrong, r)
			}
			sum.passed++
			if s.resource(a.header) != "" {
				sum.keyed++
			}
			if passed = append(passed, r); len(passed) > 2000 {
				passed = passed[500:]
			}
		}
		if *all && sum.sent%5000 < round {
			fmt.Printf("%s: %d of %d requests, %d refused, %d of another resource\n", s.name, sum.sent, n, sum.refused, len(sum.wrong))
		}
	}
	said := make(map[string]bool)
	for _, r := range sum.wrong {
		if len(said) == 12 {
			break
		}
		r, a := s.minimise(&connections[0], r)
		if text := r.String(); !said[text] {
			said[text] = true
			t.Errorf("%s works on %q under the key %q: %s", s.name, s.resource(a.header), keyOf(a), text)
		}
	}
	return sum
}

// minimise returns the smallest request found that the app reads in another way than the
// router, and its answer.
func (s *stack) minimise(c *asker, r request) (request, answer) {
	a := c.ask(r)
	for tries := 0; tries < 400; {
		found := false
		for _, smaller := range smaller(r) {
			tries++
			if got := c.ask(smaller); s.differs(got) {
				r, a, found = smaller, got, true
				break
			}
		}
		if !found {
			break
		}
	}
	return r, a
}

// TestStacks has frameworks and servers read generated requests through the router and the
// sidecar. An app must work on the resource that is its request's key, and on none that is a
// key without holding it.
func TestStacks(t *testing.T) {
	fmt.Printf("seed %d\n", *seed)
	var table strings.Builder
	for i := range stacks {
		s := &stacks[i]
		if i >= 2 && !*all {
			break
		}
		t.Run(s.name, func(t *testing.T) {
			if !s.installed() {
				t.Skipf("%s is missing: make conformance installs the stacks on Debian", s.needs)
			}
			router, _ := newRouted(t, differentialRoutes, "http://"+s.start(t))
			began := time.Now()
			sum := s.try(t, router, *requests)
			fmt.Fprintf(&table, "%-8s %9d %9d %9d %9d %9d %9d %8.1fs\n", s.name, sum.sent, sum.refused, sum.passed, sum.keyed, len(sum.wrong), sum.failed, time.Since(began).Seconds())
			if sum.keyed < sum.sent/20 {
				t.Errorf("%s has worked on a resource in %d of %d requests: the test tries too little", s.name, sum.keyed, sum.sent)
			}
		})
	}
	fmt.Printf("%-8s %9s %9s %9s %9s %9s %9s %9s\n%s", "stack", "sent", "refused", "passed", "keyed", "differ", "failed", "took", table.String())
}
