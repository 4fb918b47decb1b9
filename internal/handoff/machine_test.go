package handoff

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/lease"
	"github.com/keyway-go/keyway/internal/records"
)

func testMachine(t testing.TB, cfg Config) *Machine {
	t.Helper()
	cfg.Session.Incarnation, cfg.TTL = "me", cmp.Or(cfg.TTL, 10*time.Second)
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func packageDoc(t *testing.T) string {
	t.Helper()
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	return string(doc)
}

func TestNewRefusesNonsense(t *testing.T) {
	ok := records.Session{Incarnation: "me"}
	for _, cfg := range []Config{
		{TTL: time.Second},
		{Session: ok, TTL: time.Second, Partitions: -1},
		{Session: ok, TTL: time.Second, Batch: -1},
		{Session: ok, TTL: time.Second, Changes: -1},
		{Session: ok},
		{Session: ok, TTL: time.Second, Settle: -time.Second},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v makes a machine", cfg)
		}
	}
	m, err := New(Config{Session: ok, TTL: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if len(m.parts) != 4096 || m.cfg.CallTimeout() != 2*time.Second {
		t.Errorf("defaults: %+v", m.cfg)
	}
}

// live returns a machine that is registered and has looked at the store, and
// the instant at which it has.
func live(t testing.TB, cfg Config) (*Machine, *modelStore, Instant) {
	t.Helper()
	m := testMachine(t, cfg)
	s := newModelStore(m.cfg.Partitions, m.cfg.TTL)
	s.generation = "g0"
	now := Instant{Mono: time.Second, Wall: time.Hour}
	feed(m, s, now, Tick{})
	if m.phase != phaseLive || !m.observed {
		t.Fatalf("machine is %v", m.phase)
	}
	return m, s, now
}

// feed steps a machine, carries out its calls at once, and returns all other
// effects.
func feed(m *Machine, s *modelStore, now Instant, in Input) (out []Effect) {
	for _, e := range m.Step(now, in) {
		switch e := e.(type) {
		case FetchGeneration, Register, Renew, Observe, Apply, Clear, Release:
			out = append(out, feed(m, s, now, s.call(now.Mono, e))...)
		case CloseTable:
			out = append(append(out, e), feed(m, s, now, Closed{Partition: e.Partition})...)
		default:
			out = append(out, e)
		}
	}
	return out
}

// all wants one worker to own everything.
func all(m *Machine, inc string) View {
	return View{
		Digest:  1,
		Workers: []Peer{{Incarnation: inc, View: 1}},
		Owners:  make([]int32, len(m.parts)),
	}
}

func TestRecordsOfOthersAreLearned(t *testing.T) {
	m, s, now := live(t, Config{Partitions: 2, NewCluster: true})
	if r := m.parts[0].record; r != (records.Record{}) {
		t.Errorf("knows %v where there is no owner", r)
	}
	feed(m, s, now, all(m, "me"))
	now = now.Add(time.Second)
	feed(m, s, now, Tick{})
	if r := m.parts[0].record; r != (records.Record{Epoch: 1, Owner: "me"}) || m.parts[0].state != stateServing || m.in[stateServing] != 2 {
		t.Errorf("%v, %v, serves %d", r, m.parts[0].state, m.in[stateServing])
	}
	s.write(now.Mono, 0, records.Record{Epoch: 5, Owner: "other"})
	now = now.Add(time.Second)
	feed(m, s, now, Changed{})
	if r := m.parts[0].record; r != (records.Record{Epoch: 5, Owner: "other"}) || m.parts[0].state == stateServing {
		t.Errorf("%v, %v", r, m.parts[0].state)
	}
}

// TestStaleRepliesAreIgnored answers calls twice, late and with errors that
// would matter if they were not stale.
func TestStaleRepliesAreIgnored(t *testing.T) {
	m, _, now := live(t, Config{Partitions: 1})
	now = now.Add(2 * time.Second)
	var renew Renew
	for _, e := range m.Step(now, Tick{}) {
		if r, ok := e.(Renew); ok {
			renew = r
		}
	}
	if renew.ID == 0 {
		t.Fatal("no renewal is due")
	}
	m.Step(now, Reply{ID: renew.ID})
	held := m.lease
	if held != lease.New(now, m.cfg.TTL) {
		t.Fatalf("lease %v", held)
	}
	m.Step(now.Add(time.Second), Reply{ID: renew.ID, Err: records.ErrSessionGone})
	m.Step(now.Add(time.Second), Reply{ID: renew.ID + 1000})
	m.Step(now.Add(time.Second), Reply{})
	if m.phase != phaseLive || m.lease != held {
		t.Errorf("a stale reply made the machine %v", m.phase)
	}
}

// TestServeOnStoreLoss keeps a lease going while the store does not answer,
// until the view changes.
func TestServeOnStoreLoss(t *testing.T) {
	for _, serve := range []bool{false, true} {
		m, s, now := live(t, Config{Partitions: 1, NewCluster: true, ServeOnStoreLoss: serve})
		feed(m, s, now, all(m, "me"))
		for range 5 { // renewed under this view
			now = now.Add(time.Second)
			feed(m, s, now, Tick{})
		}
		fail := func(d time.Duration, in Input) {
			for end := now.Add(d); now.Mono < end.Mono; now = now.Add(100 * time.Millisecond) {
				for _, e := range m.Step(now, in) {
					if id := callID(e); id != 0 {
						m.Step(now, Reply{ID: id, Err: errors.New("no route to host")})
					}
				}
				in = Tick{}
			}
		}
		fail(time.Minute, Tick{})
		if got := m.lease.Admits(now); got != serve {
			t.Errorf("serve %v: admits %v after a minute without the store", serve, got)
		}
		v := all(m, "me")
		v.Digest = 2
		fail(10*time.Second, v)
		if m.lease.Admits(now) {
			t.Errorf("serve %v: admits though the view has changed", serve)
		}
	}
}

// TestBigMove moves a third of 4096 partitions in batches, none of which is
// closed for longer than its own round trip.
func TestBigMove(t *testing.T) {
	m, s, now := live(t, Config{NewCluster: true})
	s.call(now.Mono, Register{Call: Call{Generation: "g0"}, Session: records.Session{Incarnation: "other"}})
	feed(m, s, now, all(m, "me"))
	now = now.Add(time.Second)
	feed(m, s, now, Tick{})
	if m.in[stateServing] != 4096 {
		t.Fatalf("serves %d", m.in[stateServing])
	}
	v := View{Digest: 2, Workers: []Peer{{"me", 2}, {"other", 2}}, Owners: make([]int32, 4096)}
	for p := 0; p < 4096; p += 3 {
		v.Owners[p] = 1
	}
	m.Step(now, v)
	now = now.Add(time.Second)
	closed, worst, rounds := 0, 0, 0
	queue := m.Step(now, Tick{})
	for len(queue) > 0 {
		e := queue[0]
		queue = queue[1:]
		switch e := e.(type) {
		case CloseTable:
			closed++
			worst = max(worst, closed)
			queue = append(queue, m.Step(now, Closed{Partition: e.Partition})...)
		case Apply:
			rounds++
			if len(e.Changes) != closed {
				t.Fatalf("%d partitions are closed, %d are moved", closed, len(e.Changes))
			}
			closed = 0
			queue = append(queue, m.Step(now, s.call(now.Mono, e))...)
		case Observe, Renew:
			queue = append(queue, m.Step(now, s.call(now.Mono, e))...)
		}
	}
	if m.in[stateServing] != 4096-1366 || worst > 64 || rounds != 22 {
		t.Errorf("serves %d, %d closed at once, %d rounds", m.in[stateServing], worst, rounds)
	}
}

// TestPeersAreForgotten bounds what the machine remembers of others.
func TestPeersAreForgotten(t *testing.T) {
	m, s, now := live(t, Config{Partitions: 1})
	for i := range 1000 {
		inc := "w" + string(rune('0'+i%10)) + time.Duration(i).String()
		s.call(now.Mono, Register{Call: Call{Generation: "g0"}, Session: records.Session{Incarnation: inc}})
		feed(m, s, now, Changed{})
		s.call(now.Mono, Release{Call{Incarnation: inc}})
		now = now.Add(time.Millisecond)
		feed(m, s, now, Changed{})
	}
	if len(m.peers) > 100 {
		t.Errorf("remembers %d peers", len(m.peers))
	}
}

func BenchmarkStepIdle(b *testing.B) {
	m, s, now := live(b, Config{NewCluster: true})
	feed(m, s, now, all(m, "me"))
	now = now.Add(time.Second)
	feed(m, s, now, Tick{})
	b.ReportAllocs()
	for b.Loop() {
		m.Step(now, Tick{})
	}
}

// BenchmarkScan looks at all partitions of four workers, none of which moves.
func BenchmarkScan(b *testing.B) {
	m, s, now := live(b, Config{NewCluster: true})
	v := all(m, "me")
	for i := range 3 {
		inc := fmt.Sprint("w", i)
		s.call(now.Mono, Register{Call: Call{Generation: "g0"}, Session: records.Session{Incarnation: inc}})
		v.Workers = append(v.Workers, Peer{Incarnation: inc, View: v.Digest})
	}
	for p := range v.Owners {
		v.Owners[p] = int32(p % len(v.Workers))
	}
	feed(m, s, now, v)
	now = now.Add(time.Second)
	feed(m, s, now, Tick{})
	for p := range m.parts {
		m.parts[p].record.Owner = v.Workers[v.Owners[p]].Incarnation
	}
	for b.Loop() {
		m.recheck = true
		m.Step(now, Tick{})
	}
}

func BenchmarkObserveUnchanged(b *testing.B) {
	m, s, now := live(b, Config{NewCluster: true})
	feed(m, s, now, all(m, "me"))
	for i := range 20 {
		s.call(now.Mono, Register{Call: Call{Generation: "g0"}, Session: records.Session{Incarnation: time.Duration(i).String()}})
	}
	now = now.Add(time.Second)
	feed(m, s, now, Tick{})
	b.ReportAllocs()
	for b.Loop() {
		for _, e := range m.Step(now, Changed{}) {
			m.Step(now, s.call(now.Mono, e))
		}
	}
}

// TestLostLifeLeavesItsSuccessorAlone sees that a lost incarnation that ends
// its last handler does not touch what its successor uses by then.
func TestLostLifeLeavesItsSuccessorAlone(t *testing.T) {
	m, s, now := live(t, Config{Partitions: 1, NewCluster: true})
	feed(m, s, now, all(m, "me"))
	now = now.Add(time.Second)
	feed(m, s, now, Tick{})
	s.sessions = nil
	now = now.Add(2 * time.Second)
	for _, e := range m.Step(now, Tick{}) {
		if r, ok := e.(Renew); ok {
			m.Step(now, Reply{ID: r.ID, Err: records.ErrSessionGone})
		}
	}
	m.Step(now, Closed{Partition: 0, Running: []Execution{{"k", 7}}})
	if m.phase != phaseLost {
		t.Fatalf("machine is %v", m.phase)
	}
	effects := m.Step(now, Finished{0, "k", 7})
	if len(effects) != 1 {
		t.Errorf("a lost machine does %v", effects)
	}
	if _, ok := effects[0].(Release); !ok {
		t.Errorf("a lost machine does %v", effects)
	}
}

// TestClaimsOfTheReleasedDoNotSettle: what a released incarnation had is claimed at once, by a
// view that has only just changed; what nobody had is claimed when the view has settled.
func TestClaimsOfTheReleasedDoNotSettle(t *testing.T) {
	m, s, now := live(t, Config{Partitions: 2, NewCluster: true})
	s.write(now.Mono, 0, records.Record{Epoch: 5, Owner: "other"})
	feed(m, s, now, s.call(now.Mono, Release{Call{Incarnation: "other"}}))
	feed(m, s, now, Changed{})
	feed(m, s, now, all(m, "me"))
	if a, b := m.parts[0].state, m.parts[1].state; a != stateServing || b != stateRemote {
		t.Errorf("%v and %v at once, want serving and remote", a, b)
	}
	feed(m, s, now.Add(m.cfg.Settle), Tick{})
	if b := m.parts[1].state; b != stateServing {
		t.Errorf("%v when the view has settled", b)
	}
}

// TestAwaitedPartitionsAreClaimedFirst: a partition that opens is awaited no more.
func TestAwaitedPartitionsAreClaimedFirst(t *testing.T) {
	m, s, now := live(t, Config{Partitions: 9, Batch: 3, Changes: 4, NewCluster: true})
	for _, p := range []int{4, 2, -1, 9} {
		feed(m, s, now, Awaited{Partition: p})
	}
	feed(m, s, now, all(m, "me"))
	now = now.Add(time.Second)
	var applies [][]int
	for out := m.Step(now, Tick{}); ; {
		i := slices.IndexFunc(out, func(e Effect) bool { _, ok := e.(Apply); return ok })
		if i < 0 {
			break
		}
		var claimed []int
		for _, c := range out[i].(Apply).Changes {
			claimed = append(claimed, c.Partition)
		}
		applies = append(applies, claimed)
		out = m.Step(now, s.call(now.Mono, out[i]))
	}
	if got, want := fmt.Sprint(applies), "[[2 4 0] [1 3 5 6] [7 8]]"; got != want {
		t.Errorf("claimed %v, want %v", got, want)
	}
	feed(m, s, now, Awaited{Partition: 3})
	for p := range m.parts {
		if _, awaited := m.awaited[p]; awaited {
			t.Errorf("partition %d is awaited though it is open", p)
		}
	}
}
