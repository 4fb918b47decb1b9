package gossip_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/gossip"
)

// smallRing keeps the ring's arithmetic out of the tests' time.
var smallRing = ring.Config{Partitions: 64, ReplicationFactor: 8}

// logs is a log that a test can read.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logs) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// bed is a network in a bubble and the members on it.
type bed struct {
	t       *testing.T
	net     *gossip.Network
	members []*gossip.Cluster
	logs    logs
}

// bubble runs f with a bed, and closes what f leaves.
func bubble(t *testing.T, f func(t *testing.T, b *bed)) {
	gossip.Bubble(t, func(t *testing.T, n *gossip.Network) {
		b := &bed{t: t, net: n}
		defer func() {
			for _, c := range b.members {
				c.Close()
			}
			if t.Failed() {
				t.Logf("log:\n%s", &b.logs)
			}
		}()
		f(t, b)
	})
}

func address(i int) string { return fmt.Sprintf("10.0.%d.%d:7946", i/250, i%250+1) }

// config is that of the i-th member: number 0 is a router and everybody's
// seed, the others are active workers.
func (b *bed) config(i int) gossip.Config {
	cfg := gossip.Config{
		Self: ring.Member{
			Name:        fmt.Sprintf("worker-%02d", i),
			Incarnation: fmt.Sprintf("incarnation-%02d", i),
			Role:        ring.RoleWorker,
			State:       ring.StateActive,
			Addr:        fmt.Sprintf("10.0.0.%d:80", i),
		},
		Settings: ring.Settings{Ring: smallRing},
		Seeds:    []string{address(0)},
		Logger:   b.logs.logger().With("self", i),
	}
	if i == 0 {
		cfg.Self.Name, cfg.Self.Role, cfg.Seeds = "router", ring.RoleRouter, nil
	}
	return cfg
}

func (b *bed) listen(cfg gossip.Config, addr string) (*gossip.Cluster, error) {
	tr := b.net.Listen(addr)
	cfg.Transport = tr
	c, err := gossip.Start(b.t.Context(), cfg)
	if err == nil {
		b.members = append(b.members, c)
	}
	return c, err
}

func (b *bed) start(cfg gossip.Config, addr string) *gossip.Cluster {
	b.t.Helper()
	c, err := b.listen(cfg, addr)
	if err != nil {
		b.t.Fatalf("Start at %s: %v", addr, err)
	}
	return c
}

// startAll starts members 0 to n-1 and waits until they agree.
func (b *bed) startAll(n int) []*gossip.Cluster {
	b.t.Helper()
	all := make([]*gossip.Cluster, n)
	errs := make([]error, n)
	var starts sync.WaitGroup
	for i := range all {
		cfg := b.config(i)
		cfg.Transport = b.net.Listen(address(i))
		starts.Go(func() { all[i], errs[i] = gossip.Start(b.t.Context(), cfg) })
	}
	starts.Wait()
	if err := errors.Join(errs...); err != nil {
		b.t.Fatal(err)
	}
	b.members = append(b.members, all...)
	// With heavy loss an attempt to join fails now and then, after 10 s.
	b.eventually(2*time.Minute, "all members agree", func() bool { return agree(all, n) })
	return all
}

// eventually polls cond in the bubble's time.
func (b *bed) eventually(within time.Duration, what string, cond func() bool) time.Duration {
	b.t.Helper()
	start := time.Now()
	for !cond() {
		if time.Since(start) > within {
			for _, c := range b.members {
				b.t.Logf("%s sees %s", c.Addr(), names(c.View()))
			}
			b.t.Fatalf("not within %v: %s", within, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(start)
}

// agree reports whether each of the clusters sees n members, and all of them
// the same digest, and knows this of the others.
func agree(clusters []*gossip.Cluster, n int) bool {
	want := clusters[0].View().Digest
	for _, c := range clusters {
		v := c.View()
		if len(v.Members) != n || v.Digest != want {
			return false
		}
		for _, m := range v.Members {
			if m.View != want {
				return false
			}
		}
	}
	return true
}

func names(v *ring.View) string {
	var s []string
	for _, m := range v.Members {
		s = append(s, fmt.Sprintf("%s/%s/%x", m.Name, m.State, m.View>>48))
	}
	return fmt.Sprintf("%x: %s", v.Digest>>48, strings.Join(s, " "))
}

func find(c *gossip.Cluster, name string) (ring.Member, bool) {
	for _, m := range c.View().Members {
		if m.Name == name {
			return m, true
		}
	}
	return ring.Member{}, false
}

func TestMembersConverge(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		start := time.Now()
		all := b.startAll(30)
		t.Logf("30 members agree after %v", time.Since(start))
		v := all[29].View()
		if got := len(v.Table.Members()); got != 29 {
			t.Errorf("%d workers on the ring, want 29", got)
		}
		for _, m := range v.Members {
			if m.Name == "worker-07" {
				want := ring.Member{Name: "worker-07", Incarnation: "incarnation-07", Role: ring.RoleWorker,
					State: ring.StateActive, Addr: "10.0.0.7:80", Gossip: "10.0.0.8:7946", View: v.Digest}
				if m != want {
					t.Errorf("worker-07 is seen as\n%+v, want\n%+v", m, want)
				}
			}
		}
	})
}

func TestMembersConvergeDespiteLoss(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		b.net.SetLoss(0.3)
		start := time.Now()
		all := b.startAll(30)
		t.Logf("agree after %v", time.Since(start))

		// False alarms must be rare and pass.
		disturbed := 0
		for range 15 {
			time.Sleep(time.Second)
			if !agree(all, 30) {
				disturbed++
			}
		}
		t.Logf("%d of 15 seconds disturbed; %d members lost", disturbed, strings.Count(b.logs.String(), "member lost"))
		b.eventually(20*time.Second, "agree again", func() bool { return agree(all, 30) })
	})
}

func TestPartitionHeals(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		all := b.startAll(16)
		before := all[0].View().Digest
		var left []string
		for i := range 8 {
			left = append(left, address(i))
		}
		b.net.Partition(left)
		took := b.eventually(30*time.Second, "each half sees itself alone", func() bool {
			return agree(all[:8], 8) && agree(all[8:], 8)
		})
		t.Logf("halves agree after %v", took)
		time.Sleep(time.Minute) // memberlist has forgotten the dead
		b.net.Heal()
		took = b.eventually(10*time.Second, "one cluster again", func() bool { return agree(all, 16) })
		t.Logf("one cluster again after %v", took)
		if got := all[0].View().Digest; got != before {
			t.Errorf("digest is %x after the split, %x before", got, before)
		}
	})
}

// A cluster whose seed is gone for good heals all the same: members remember
// whom they lost.
func TestSplitHealsWithoutSeeds(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		all := b.startAll(7)
		all[0].Close()
		b.net.Partition([]string{address(1), address(2), address(3)})
		b.eventually(20*time.Second, "two halves", func() bool { return agree(all[1:4], 3) && agree(all[4:], 3) })
		time.Sleep(2 * time.Minute)
		b.net.Heal()
		took := b.eventually(20*time.Second, "one cluster again", func() bool { return agree(all[1:], 6) })
		t.Logf("one cluster again after %v", took)
	})
}

// A cut of one direction between two members makes neither take the other for
// dead: others can still reach both.
func TestOneWayCut(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		all := b.startAll(5)
		b.net.Cut(address(1), address(2))
		for range 60 {
			time.Sleep(time.Second)
			if !agree(all, 5) {
				t.Fatal("a cut of one link disturbed the cluster")
			}
		}
	})
}

func TestCrash(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		all := b.startAll(10)
		dead, _ := find(all[0], b.config(7).Self.Name)
		if !all[0].Ping(dead) {
			t.Error("a member that lives does not answer")
		}
		for _, c := range all[7:] {
			c.Close()
		}
		if all[0].Ping(dead) {
			t.Error("a dead member answers")
		}
		took := b.eventually(10*time.Second, "the dead are missed", func() bool { return agree(all[:7], 7) })
		t.Logf("three crashes noticed by all after %v", took)
	})
}

func TestLeave(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		all := b.startAll(10)
		if err := all[8].Announce(func(self *ring.Member) { self.State = ring.StateLeaving }); err != nil {
			t.Errorf("Announce: %v", err)
		}
		if err := all[8].Leave(t.Context()); err != nil { // while that is on its way
			t.Errorf("Leave: %v", err)
		}
		if err := all[9].Leave(t.Context()); err != nil {
			t.Errorf("Leave: %v", err)
		}
		took := b.eventually(time.Second, "the leavers are gone", func() bool { return agree(all[:8], 8) })
		t.Logf("leave known by all after %v more", took)
		if log := b.logs.String(); strings.Contains(log, "member lost") || !strings.Contains(log, "member left") {
			t.Error("a leaver was taken for dead")
		}
		for range 2 { // both end a Cluster that has ended
			if err := all[9].Leave(t.Context()); err != nil {
				t.Errorf("Leave again: %v", err)
			}
			if err := all[9].Close(); err != nil {
				t.Errorf("Close after Leave: %v", err)
			}
		}
		if err := all[9].Announce(func(*ring.Member) {}); err == nil || err.Error() != "gossip: closed" {
			t.Errorf("Announce after Leave: %v, want ErrClosed", err)
		}
		all[9].AddSeeds([]string{address(0)})
	})
}

func TestLeaveEndsWithContext(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		all := b.startAll(3)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		start := time.Now()
		if err := all[2].Leave(ctx); err == nil {
			t.Error("Leave without time told the peers")
		}
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Errorf("Leave took %v after its context ended", took)
		}
		b.eventually(10*time.Second, "the others notice", func() bool { return agree(all[:2], 2) })
	})
}

func TestAnnounceSpreads(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		all := b.startAll(10)
		changed := all[3].Changed()
		err := all[4].Announce(func(m *ring.Member) {
			m.State, m.Incarnation, m.Store, m.Addr = ring.StateLeaving, "second", "redis://10.0.0.4:6379", "10.9.9.9:80"
			m.Name, m.Role, m.Gossip, m.View = "other", ring.RoleRouter, "10.9.9.9:1", 7 // not its to change
		})
		if err != nil {
			t.Fatal(err)
		}
		v := all[4].View()
		want := ring.Member{Name: "worker-04", Incarnation: "second", Role: ring.RoleWorker, State: ring.StateLeaving,
			Addr: "10.9.9.9:80", Gossip: "10.0.0.5:7946", Store: "redis://10.0.0.4:6379", View: v.Digest}
		if got, _ := find(all[4], "worker-04"); got != want {
			t.Errorf("own view right after Announce has\n%+v, want\n%+v", got, want)
		}
		<-changed
		took := b.eventually(3*time.Second, "all know", func() bool {
			for _, c := range all {
				if got, _ := find(c, "worker-04"); got != want {
					return false
				}
			}
			return agree(all, 10)
		})
		t.Logf("a change is known by all after %v", took)
		if got := len(v.Table.Members()); got != 8 {
			t.Errorf("%d workers on the ring, want 8", got)
		}
	})
}

// News that memberlist's queue loses, as it may when changes follow each other
// quickly, arrive all the same. Whether it does depends on when the members
// happen to gossip, so several clusters try.
func TestQuickChangesArrive(t *testing.T) {
	for range 2 {
		bubble(t, func(t *testing.T, b *bed) {
			all := b.startAll(5)
			var longest time.Duration
			for round := range 50 {
				longest = max(longest, b.changeQuickly(all, round))
			}
			t.Logf("all know the latest after at most %v", longest)
		})
	}
}

// changeQuickly returns how long all take to know the second of two changes.
func (b *bed) changeQuickly(all []*gossip.Cluster, round int) time.Duration {
	b.t.Helper()
	store := fmt.Sprintf("redis://10.0.0.1:%d", 10000+round)
	announce := func(i int, addr string) {
		if err := all[i].Announce(func(self *ring.Member) { self.Addr, self.Store = addr, store }); err != nil || all[i].Self().Addr != addr {
			b.t.Fatal(err)
		}
	}
	announce(1, "10.0.0.1:80")
	time.Sleep(time.Duration(40+2*round) * time.Millisecond)
	announce(1, "10.0.0.1:81")
	announce(2, "10.0.0.1:82")
	return b.eventually(time.Second, "all know the latest", func() bool {
		return !slices.ContainsFunc(all, func(c *gossip.Cluster) bool {
			m, _ := find(c, "worker-01")
			return m.Addr != "10.0.0.1:81" || m.Store != store
		})
	})
}

func TestAnnounceRefusesWhatDoesNotFit(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		c := b.start(b.config(1), address(1))
		before := c.View()
		for what, change := range map[string]func(*ring.Member){
			"store":       func(m *ring.Member) { m.Store = strings.Repeat("x", 500) },
			"no state":    func(m *ring.Member) { m.State = 0 },
			"other state": func(m *ring.Member) { m.State = 99 },
		} {
			if err := c.Announce(change); err == nil || !strings.Contains(err.Error(), gossip.ErrConfig.Error()) {
				t.Errorf("%s: Announce: %v, want ErrConfig", what, err)
			}
		}
		if c.View() != before {
			t.Error("a refused change made a new view")
		}
	})
}

// A member that comes later is told what has changed before.
func TestLateMemberKnowsTheLatest(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		all := b.startAll(3)
		if err := all[1].Announce(func(m *ring.Member) { m.State, m.Incarnation, m.Epoch = ring.StateLeaving, "second", 9 }); err != nil {
			t.Fatal(err)
		}
		b.eventually(3*time.Second, "the others know", func() bool { return agree(all, 3) })
		time.Sleep(5 * time.Second)
		late := b.start(b.config(3), address(3))
		b.eventually(20*time.Millisecond, "the late one knows", func() bool {
			m, _ := find(late, "worker-01")
			return m.State == ring.StateLeaving && m.Incarnation == "second" && m.Epoch == 9
		})
	})
}

// A worker that comes back at another address, before it was missed, is a
// member twice for a while; then only its new life remains.
func TestSameNameNewAddress(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		all := b.startAll(5)
		all[4].Close()
		cfg := b.config(4)
		cfg.Self.Incarnation = "second"
		again := b.start(cfg, address(40))
		b.eventually(time.Second, "both lives are known", func() bool {
			return len(all[1].View().Members) == 6 && len(again.View().Members) == 6
		})
		if got := len(all[1].View().Table.Members()); got != 4 {
			t.Errorf("%d names on the ring, want 4", got)
		}
		now := []*gossip.Cluster{all[0], all[1], all[2], all[3], again}
		b.eventually(5*time.Second, "only the new life remains", func() bool { return agree(now, 5) })
		if m, _ := find(all[1], "worker-04"); m.Gossip != address(40) || m.Incarnation != "second" {
			t.Errorf("worker-04 is %+v", m)
		}
	})
}

// The same address belongs to the next process at once.
func TestSameAddressNewProcess(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		all := b.startAll(5)
		all[4].Close()
		again := b.start(b.config(9), address(4))
		now := []*gossip.Cluster{all[0], all[1], all[2], all[3], again}
		b.eventually(10*time.Second, "the new process replaces the old", func() bool { return agree(now, 5) })
	})
}

func TestDuplicatesAreReported(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		b.startAll(3)
		twin := b.config(1)
		twin.Self.Incarnation = "twin"
		b.start(twin, address(7))
		time.Sleep(20 * time.Second)
		if log := b.logs.String(); !strings.Contains(log, "several workers have one name") ||
			!strings.Contains(log, address(1)) || !strings.Contains(log, address(7)) || !strings.Contains(log, "--name") {
			t.Error("two workers with one name were not reported")
		}
		other := b.config(0) // a router, whose name places nothing
		other.Seeds = []string{address(0)}
		b.start(other, address(8))
		time.Sleep(20 * time.Second)
		if strings.Contains(b.logs.String(), "shared=router") {
			t.Error("two routers with one name were reported")
		}
		if strings.Contains(b.logs.String(), "shared=10.0.0.2:80") {
			t.Error("the address of one worker was reported")
		}
		there := b.config(9)
		there.Self.Addr = "10.0.0.2:80"
		b.start(there, address(9))
		time.Sleep(20 * time.Second)
		if log := b.logs.String(); !strings.Contains(log, "shared=10.0.0.2:80") || !strings.Contains(log, "--advertise") {
			t.Error("two workers with one address were not reported")
		}
		if n := len(b.members[0].View().Members); n != 6 {
			t.Errorf("the router sees %d members, want 6", n)
		}
	})
}

// A member that was cut off, as a paused process is for its peers, comes back
// by itself.
func TestCutOffMemberReturns(t *testing.T) {
	for _, away := range []time.Duration{500 * time.Millisecond, 5 * time.Second, 3 * time.Minute} {
		t.Run(away.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bed) {
				all := b.startAll(7)
				b.net.Partition([]string{address(6)})
				time.Sleep(away)
				b.net.Heal()
				// An attempt to join that began before may take five seconds.
				took := b.eventually(10*time.Second, "the member is back", func() bool { return agree(all, 7) })
				t.Logf("back after %v", took)
			})
		})
	}
}

// TestBury: members drop an incarnation at once that one of them knows to be dead, and take
// it back when it speaks up.
func TestBury(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		var all []*gossip.Cluster
		for i := range 3 {
			all = append(all, b.start(b.config(i), address(i)))
		}
		time.Sleep(2 * time.Second)
		sees := func(want bool) {
			t.Helper()
			for i, c := range all[:2] {
				if _, ok := c.View().Find("incarnation-02"); ok != want {
					t.Errorf("member %d sees it: %v, want %v", i, ok, want)
				}
			}
		}
		sees(true)
		all[1].Bury([]string{"nobody", "incarnation-02"})
		time.Sleep(50 * time.Millisecond)
		sees(false)
		if err := all[2].Announce(func(m *ring.Member) { m.Addr = "10.0.0.9:80" }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		sees(true)
	})
}
