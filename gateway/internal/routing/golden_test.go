package routing

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/internal/test/golden"
	"github.com/keyway-go/keyway/ring"
)

// TestTranscripts plays the scenarios in testdata. Each line that begins with
// ">" is a command of [script.command]; what follows it is what the requests then
// did, a line for each request and time. Pauses between attempts have no jitter.
func TestTranscripts(t *testing.T) {
	golden.Play(t, func(t *testing.T, text string) (got []byte) {
		synctest.Test(t, func(t *testing.T) { got = play(t, text) })
		return got
	})
}

// script plays a scenario with one router.
type script struct {
	t       *testing.T
	out     bytes.Buffer
	start   time.Time
	routes  *Routes
	running sync.WaitGroup
	cancel  map[string]context.CancelCauseFunc // by request

	mu      sync.Mutex
	view    *ring.View
	changed chan struct{}
	replies map[string][]string // by worker, the first one for the next attempt; the last one stays
	events  []event             // since the last command
}

const partitions = 8

// event is what a request did at one time.
type event struct {
	at      time.Duration
	request string
	n       int // of the request in its crowd
	what    string
}

func play(t *testing.T, text string) []byte {
	s := &script{t: t, start: time.Now(), cancel: map[string]context.CancelCauseFunc{}, replies: map[string][]string{}, changed: make(chan struct{})}
	s.setMembers(nil)
	s.open(15*time.Second, 10_000)
	told := false // something, since the last command or comment
	for line := range strings.Lines(text) {
		comment := line[0] == '#'
		if !comment && line[0] != '>' {
			continue
		}
		if told {
			s.out.WriteByte('\n')
		}
		s.out.WriteString(line)
		before := s.out.Len()
		if !comment {
			s.command(strings.Fields(line[1:]))
			synctest.Wait()
			s.print()
		}
		told = s.out.Len() > before
	}
	if n := s.routes.Holding.Load(); n != 0 {
		t.Errorf("%d requests wait at the end", n)
	}
	s.running.Wait()
	return s.out.Bytes()
}

func (s *script) open(patience time.Duration, limit int) {
	s.routes = New(s, partitions, patience, limit)
	s.routes.jitter = func(d time.Duration) time.Duration { return d }
}

// command carries out one line of a scenario.
func (s *script) command(f []string) {
	number := func(text string) int {
		n, err := strconv.Atoi(text)
		if err != nil {
			s.t.Fatalf("%v: %v", f, err)
		}
		return n
	}
	duration := func(text string) time.Duration {
		d, err := time.ParseDuration(text)
		if err != nil {
			s.t.Fatalf("%v: %v", f, err)
		}
		return d
	}
	switch f[0] {
	case "hold": // hold 15s 10000: for how long requests wait, and how many at most
		s.open(duration(f[1]), number(f[2]))
	case "members": // members a1 b1:leaving r1:router: incarnations; what is no more is an active worker
		s.setMembers(f[1:])
	case "request": // request r p3: of a partition, p0 by default
		p := 0
		if len(f) > 2 {
			p = number(f[2][1:])
		}
		s.request(f[1], 0, p)
	case "crowd": // crowd many 20: requests of p0 that are told of together
		for i := range number(f[2]) {
			s.request(f[1], i, 0)
		}
	case "cancel": // the request's client leaves
		s.cancel[f[1]](errors.New("the client has left"))
	case "run": // run 2s: let time pass
		time.Sleep(duration(f[1]))
	case "owner": // print where a request of p0 would go first
		t, _ := s.routes.Owner(0)
		fmt.Fprintln(&s.out, describe(t))
	case "stats":
		r := s.routes
		fmt.Fprintf(&s.out, "held %d, holding %d, refusals %d, hops %d\n", r.Held.Load(), r.Holding.Load(), r.Refusals.Load(), r.Hops.Load())
	default: // a1 unavailable, owner b1 7, answers after 10s: a worker's next replies, see reply
		s.mu.Lock()
		defer s.mu.Unlock()
		s.replies[f[0]] = strings.Split(strings.Join(f[1:], " "), ", ")
	}
}

func (s *script) setMembers(tokens []string) {
	var members []ring.Member
	var active []string
	for _, token := range tokens {
		incarnation, kind, _ := strings.Cut(token, ":")
		m := ring.Member{Name: incarnation[:1], Incarnation: incarnation, Role: ring.RoleWorker, State: ring.StateActive}
		switch kind {
		case "leaving":
			m.State = ring.StateLeaving
		case "router":
			m.Role = ring.RoleRouter
		default:
			active = append(active, m.Name)
		}
		members = append(members, m)
	}
	table, err := ring.New(ring.Config{Partitions: partitions}, active)
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.view = ring.NewView(table, members)
	close(s.changed)
	s.changed = make(chan struct{})
}

// View implements [Members].
func (s *script) View() *ring.View {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.view
}

// Changed implements [Members].
func (s *script) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// request sends a request and lets it go as far as it can.
func (s *script) request(name string, n, p int) {
	ctx, cancel := context.WithCancelCause(s.t.Context())
	s.cancel[name] = cancel
	log := func(format string, args ...any) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.events = append(s.events, event{time.Since(s.start), name, n, fmt.Sprintf(format, args...)})
	}
	s.running.Go(func() {
		err := s.routes.Route(ctx, p, s.routes.Patience, func(t Target) Outcome { return s.attempt(t, log) })
		if err != nil {
			log("fails: %v", err)
			return
		}
		log("done")
	})
	synctest.Wait()
}

// attempt plays a worker's next reply.
func (s *script) attempt(t Target, log func(string, ...any)) Outcome {
	s.mu.Lock()
	replies := s.replies[t.Incarnation]
	reply := "unreachable"
	if len(replies) > 0 {
		reply = replies[0]
		s.replies[t.Incarnation] = replies[min(1, len(replies)-1):]
	}
	s.mu.Unlock()
	reply, after, slow := strings.Cut(reply, " after ")
	if slow {
		log("asks %s", describe(t))
		d, err := time.ParseDuration(after)
		if err != nil {
			panic(err)
		}
		time.Sleep(d)
		log("%s: %s", t.Incarnation, reply)
	} else {
		log("asks %s: %s", describe(t), reply)
	}
	f := strings.Fields(reply)
	switch f[0] {
	case "answers":
		return Outcome{}
	case "breaks":
		return Outcome{Err: errors.New(t.Incarnation + " broke the connection")}
	case "refuses": // and knows no owner
		return Outcome{Verdict: NotOwner, Err: errors.New("refused")}
	case "owner": // owner b1 7
		epoch, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil {
			panic(err)
		}
		return Outcome{Verdict: NotOwner, Hint: Hint{f[1], epoch}, Err: errors.New("refused")}
	case "lost": // while the request waited there
		return Outcome{Verdict: NotStarted, Waited: true, Err: errors.New(reply)}
	case "unavailable", "unreachable":
		return Outcome{Verdict: NotStarted, Err: errors.New(reply)}
	}
	panic("no reply: " + reply)
}

func describe(t Target) string {
	text := cmp.Or(t.Incarnation, "nobody")
	if t.Epoch > 0 {
		text += fmt.Sprintf(" (%d)", t.Epoch)
	}
	return text
}

// print tells of the events since the last command. What requests do at the
// same time is told in the order of their names, and what several of a crowd do
// in the same way is told once.
func (s *script) print() {
	s.mu.Lock()
	defer s.mu.Unlock()
	order := func(a, b event) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.request, b.request), cmp.Compare(a.n, b.n))
	}
	slices.SortStableFunc(s.events, order)
	count := map[[3]string]int{}
	for len(s.events) > 0 {
		e, n := s.events[0], 1
		for n < len(s.events) && order(e, s.events[n]) == 0 {
			e.what += ", " + s.events[n].what
			n++
		}
		s.events = s.events[n:]
		count[[3]string{fmt.Sprintf("%7.3fs", e.at.Seconds()), e.request, e.what}]++
	}
	byText := func(a, b [3]string) int { return slices.Compare(a[:], b[:]) }
	for _, line := range slices.SortedFunc(maps.Keys(count), byText) {
		if n := count[line]; n > 1 {
			line[1] += fmt.Sprintf(" ×%d", n)
		}
		fmt.Fprintln(&s.out, line[0], line[1], line[2])
	}
}
