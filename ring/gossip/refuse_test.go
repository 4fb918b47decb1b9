package gossip_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/gossip"
)

// A member that does not belong into the cluster is refused by both sides, and
// both say why.
func TestRefusals(t *testing.T) {
	key1, key2 := bytes.Repeat([]byte{1}, 16), bytes.Repeat([]byte{2}, 32)
	for name, tt := range map[string]struct {
		seed, joiner func(*gossip.Config)
		start        []string // in Start's error
		seedLog      []string // in the seed's log
	}{
		"cluster": {
			joiner:  func(c *gossip.Config) { c.Settings.Cluster = "shop" },
			start:   []string{"cluster name differs", `"shop" at worker "worker-01" (10.0.0.2:7946)`, `"keyway" at router "router" (10.0.0.1:7946)`, "--cluster"},
			seedLog: []string{"cluster name differs", "shop", "keyway", "10.0.0.1:7946", "10.0.0.2:7946", "--cluster"},
		},
		"partitions": {
			joiner:  func(c *gossip.Config) { c.Settings.Ring.Partitions = 65 },
			start:   []string{"number of partitions differs", "65 at worker", "64 at router", "10.0.0.1:7946", "10.0.0.2:7946"},
			seedLog: []string{"number of partitions differs", "65 at worker", "64 at router"},
		},
		"replication factor": {
			seed:    func(c *gossip.Config) { c.Settings.Ring.ReplicationFactor = 0 },
			start:   []string{"replication factor differs", "8 at worker", "128 at router"},
			seedLog: []string{"replication factor differs", "8 at worker", "128 at router"},
		},
		"load": {
			joiner:  func(c *gossip.Config) { c.Settings.Ring.Load = 1.5 },
			start:   []string{"load differs", "1.5 at worker"},
			seedLog: []string{"load differs", "1.5 at worker"},
		},
		"session TTL": {
			joiner:  func(c *gossip.Config) { c.Settings.TTL = 5 * time.Second },
			start:   []string{"session TTL differs", "5s at worker", "10s at router", "--session-ttl"},
			seedLog: []string{"session TTL differs", "5s at worker", "10s at router", "--session-ttl"},
		},
		"TLS": {
			joiner:  func(c *gossip.Config) { c.Settings.PeerTLS = true },
			start:   []string{"TLS between members differs", "on at worker", "off at router", "--peer-cert"},
			seedLog: []string{"TLS between members differs", "on at worker", "off at router", "--peer-cert"},
		},
		"key source": {
			seed:    func(c *gossip.Config) { c.Settings.KeySource = "header:X-Key" },
			joiner:  func(c *gossip.Config) { c.Settings.KeySource = "query:id"; c.Self.Role = ring.RoleRouter },
			start:   []string{"key source differs", `"query:id"`, `"header:X-Key"`, "--key"},
			seedLog: []string{"key source differs", "query:id", "header:X-Key", "--key"},
		},
		"other key": {
			seed:    func(c *gossip.Config) { c.Keyring = [][]byte{key1} },
			joiner:  func(c *gossip.Config) { c.Keyring = [][]byte{key2} },
			start:   []string{"seed 10.0.0.1:7946 encrypts gossip with a key that this member does not have", "--gossip-key"},
			seedLog: []string{"a key that this member does not have", "10.0.0.2:7946", "--gossip-key"},
		},
		"key missing": {
			seed:    func(c *gossip.Config) { c.Keyring = [][]byte{key1} },
			start:   []string{"seed 10.0.0.1:7946 encrypts gossip, this member does not", "--gossip-key"},
			seedLog: []string{"a peer does not encrypt gossip", "10.0.0.2:7946", "--gossip-key"},
		},
		"key not wanted": {
			joiner:  func(c *gossip.Config) { c.Keyring = [][]byte{key1} },
			start:   []string{"seed 10.0.0.1:7946 does not encrypt gossip, this member does", "--gossip-key"},
			seedLog: []string{"a peer encrypts gossip, this member does not", "10.0.0.2:7946", "--gossip-key"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bed) {
				seedCfg, joinerCfg := b.config(0), b.config(1)
				var seedLog logs
				seedCfg.Logger = seedLog.logger()
				if tt.seed != nil {
					tt.seed(&seedCfg)
				}
				if tt.joiner != nil {
					tt.joiner(&joinerCfg)
				}
				seed := b.start(seedCfg, address(0))
				_, err := b.listen(joinerCfg, address(1))
				if !errors.Is(err, gossip.ErrRefused) {
					t.Fatalf("Start: %v, want ErrRefused", err)
				}
				t.Logf("Start: %v", err)
				for _, want := range tt.start {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("the error lacks %q", want)
					}
				}
				time.Sleep(time.Second)
				t.Logf("seed's log: %s", &seedLog)
				for _, want := range tt.seedLog {
					// The handler quotes the quotes of a message.
					if !strings.Contains(strings.ReplaceAll(seedLog.String(), `\"`, `"`), want) {
						t.Errorf("the seed's log lacks %q", want)
					}
				}
				if n := len(seed.View().Members); n != 1 {
					t.Errorf("the seed sees %d members, want itself", n)
				}
			})
		})
	}
}

// Two clusters that met by mistake stay two, and say so of each other at most
// once a minute.
func TestStrangersStayApart(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		for i := range 6 {
			cfg := b.config(i)
			if i >= 3 {
				cfg.Settings.Cluster = "shop"
				cfg.Seeds = []string{address(3)}
			}
			b.start(cfg, address(i))
		}
		b.members[4].AddSeeds([]string{address(1)})
		time.Sleep(3 * time.Minute)
		if !agree(b.members[:3], 3) || !agree(b.members[3:], 3) {
			t.Error("the clusters mixed")
		}
		lines := make(map[string]int)
		for line := range strings.Lines(b.logs.String()) {
			if _, text, ok := strings.Cut(line, " "); ok && strings.Contains(text, "cluster name differs") {
				lines[text]++
			}
		}
		for text, n := range lines {
			if n > 3 {
				t.Errorf("%d times in three minutes: %s", n, text)
			}
		}
		if len(lines) < 2 {
			t.Errorf("only %d sides say it", len(lines))
		}
	})
}

// One seed that refuses is an error in the log, not the end, while another
// seed takes the member in or may yet.
func TestSomeSeedRefuses(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		b.start(b.config(0), address(0))
		other := b.config(1)
		other.Settings.Cluster, other.Seeds = "shop", nil
		b.start(other, address(1))

		cfg := b.config(2)
		cfg.Seeds = []string{address(0), address(1)}
		c := b.start(cfg, address(2))
		if n := len(c.View().Members); n != 2 {
			t.Errorf("joined %d members, want 2", n)
		}
		cfg = b.config(3)
		cfg.Seeds = []string{address(1), address(99)}
		b.start(cfg, address(3))
		time.Sleep(5 * time.Second)
		if !strings.Contains(b.logs.String(), "cannot join a seed") {
			t.Error("no word of the seed that refuses")
		}
	})
}

// A cluster that happens to be at a default address stops nobody, and the log names it.
func TestAStrangerAtAGuessedAddress(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		b.start(b.config(0), address(0))
		cfg := b.config(1)
		var log logs
		cfg.Settings.Cluster, cfg.Seeds, cfg.Guessed, cfg.Logger = "shop", []string{address(0)}, true, log.logger()
		c := b.start(cfg, address(1))
		if n := len(c.View().Members); n != 1 {
			t.Errorf("it sees %d members, want itself", n)
		}
		for _, want := range []string{"the default address of --join", "refuses this one", "cluster name differs"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log lacks %q: %s", want, &log)
			}
		}
	})
}

func TestOwnAddressIsNoSeed(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		b.start(b.config(0), address(0))
		cfg := b.config(1)
		cfg.Settings.Cluster, cfg.Seeds = "shop", []string{address(0), address(1)}
		if _, err := b.listen(cfg, address(1)); !errors.Is(err, gossip.ErrRefused) {
			t.Errorf("Start: %v, want ErrRefused: only it would have taken itself in", err)
		}
	})
}

// Of routers that take keys from different places, and meet through a worker that has no
// key source of its own, the later one is to send no requests.
func TestRoutersMeetThroughWorker(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		first, second, worker := b.config(0), b.config(0), b.config(1)
		first.Settings.KeySource, second.Settings.KeySource = "header:X-Key", "query:id"
		second.Self.Name = "router-2"
		var log logs
		first.Logger = log.logger()
		c := b.start(first, address(0))
		time.Sleep(10 * time.Millisecond)
		d := b.start(second, address(9))
		worker.Seeds = []string{address(0), address(9)}
		w := b.start(worker, address(1))
		time.Sleep(10 * time.Second)
		if n := len(w.View().Members); n != 3 {
			t.Errorf("the worker sees %d members, want 3", n)
		}
		if c.View().KeyConflict != nil || !errors.Is(d.View().KeyConflict, ring.ErrSettings) {
			t.Errorf("conflict of the first router: %v, of the second: %v", c.View().KeyConflict, d.View().KeyConflict)
		}
		if !strings.Contains(log.String(), "key source differs") {
			t.Error("no word of it")
		}
	})
}

// Close does not wait for a seed that takes connections and then says nothing.
func TestCloseInTheMiddleOfAJoin(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		b.net.Listen(address(0)) // where nobody reads
		c := b.start(b.config(1), address(1))
		start := time.Now()
		c.Close()
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Errorf("Close took %v", took)
		}
	})
}

func TestUnreachableSeed(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		cfg := b.config(1)
		var log logs
		cfg.Logger = log.logger()
		c := b.start(cfg, address(1))
		if got := c.View().Members; len(got) != 1 || got[0].Name != "worker-01" {
			t.Fatalf("alone, it sees %v", got)
		}
		if !strings.Contains(log.String(), "cannot join a seed yet") || !strings.Contains(log.String(), address(0)) {
			t.Errorf("no word of the seed that is missing:\n%s", &log)
		}
		time.Sleep(5 * time.Minute)
		b.start(b.config(0), address(0))
		took := b.eventually(2*time.Second, "the late seed is joined", func() bool { return agree(b.members, 2) })
		t.Logf("late seed joined after %v", took)
	})
}

// A black hole must not hold Start up for long.
func TestSilentSeed(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		b.net.Partition([]string{address(1)})
		b.start(b.config(0), address(0))
		start := time.Now()
		b.start(b.config(1), address(1))
		if !strings.Contains(b.logs.String(), "seeds have not answered yet") {
			t.Error("no word of the silence")
		}
		if took := time.Since(start); took > 2100*time.Millisecond {
			t.Errorf("Start took %v", took)
		}
		b.net.Heal()
		b.eventually(10*time.Second, "joined after all", func() bool { return agree(b.members, 2) })
	})
}

func TestStartEndsWithContext(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		b.net.Partition([]string{address(1)})
		b.start(b.config(0), address(0))
		ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errors.New("changed my mind"))
		defer cancel()
		cfg := b.config(1)
		cfg.Transport = b.net.Listen(address(1))
		if _, err := gossip.Start(ctx, cfg); err == nil || !strings.Contains(err.Error(), "changed my mind") {
			t.Errorf("Start: %v", err)
		}
	})
}

func TestAddSeeds(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		lone := b.config(1)
		lone.Seeds = nil
		b.start(b.config(0), address(0))
		c := b.start(lone, address(1))
		c.AddSeeds([]string{"not an address:x", address(1), address(0)})
		b.eventually(2*time.Second, "the added address is joined", func() bool { return agree(b.members, 2) })
	})
}

// Keys are rotated without a moment in which members cannot talk: add the new
// key last everywhere, move it first, remove the old one.
func TestKeyRotation(t *testing.T) {
	old, young := bytes.Repeat([]byte{1}, 16), bytes.Repeat([]byte{2}, 32)
	bubble(t, func(t *testing.T, b *bed) {
		for i, keys := range [][][]byte{{old}, {old, young}, {young, old}, {old, young}} {
			cfg := b.config(i)
			cfg.Keyring = keys
			if i > 0 {
				cfg.Seeds = []string{address(i - 1)}
			}
			if i == 2 {
				cfg.Seeds = []string{address(1)}
				b.members[0].Close()
			}
			b.start(cfg, address(i))
		}
		b.eventually(10*time.Second, "agree", func() bool { return agree(b.members[1:], 3) })
	})
}

func TestConfigErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*gossip.Config)
		want   string
	}{
		"no name":     {func(c *gossip.Config) { c.Self.Name = "" }, "--name"},
		"long name":   {func(c *gossip.Config) { c.Self.Name = strings.Repeat("x", 129) }, "--name"},
		"no role":     {func(c *gossip.Config) { c.Self.Role = 0 }, "role"},
		"bad state":   {func(c *gossip.Config) { c.Self.State = 77 }, "state"},
		"cluster":     {func(c *gossip.Config) { c.Settings.Cluster = strings.Repeat("x", 65) }, "--cluster"},
		"key":         {func(c *gossip.Config) { c.Keyring = [][]byte{make([]byte, 15)} }, "--gossip-key"},
		"seed port":   {func(c *gossip.Config) { c.Seeds = []string{"host:http9"} }, "--join"},
		"seed zero":   {func(c *gossip.Config) { c.Seeds = []string{"host:0"} }, "--join"},
		"seed colons": {func(c *gossip.Config) { c.Seeds = []string{"a:b:c"} }, "--join"},
		"seed empty":  {func(c *gossip.Config) { c.Seeds = []string{""} }, "--join"},
		"bind":        {func(c *gossip.Config) { c.Bind = "127.0.0.1:port" }, "--gossip"},
		"advertise":   {func(c *gossip.Config) { c.Advertise = "127.0.0.1:port" }, "Advertise"},
		"ring":        {func(c *gossip.Config) { c.Settings.Ring.Load = 0.5 }, "load"},
		"too long":    {func(c *gossip.Config) { c.Self.Store = strings.Repeat("x", 500) }, "store URL"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := gossip.Config{Self: ring.Member{Name: "a", Role: ring.RoleWorker}, Settings: ring.Settings{Ring: smallRing}}
			tt.change(&cfg)
			c, err := gossip.Start(t.Context(), cfg)
			if err == nil {
				c.Close()
			}
			if !errors.Is(err, gossip.ErrConfig) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Start: %v, want ErrConfig with %q", err, tt.want)
			}
		})
	}
}

// A router announces routes that agree with those of the others, and no others.
func TestAnnounceKeySource(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		one, two := ring.RoutesKeySource([]string{"1"}), ring.RoutesKeySource([]string{"1", "2"})
		other := ring.RoutesKeySource([]string{"1", "3"})
		first, second := b.config(0), b.config(0)
		first.Settings.KeySource, second.Settings.KeySource = one, one
		second.Self.Name, second.Seeds = "router-2", []string{address(0)}
		c, d := b.start(first, address(0)), b.start(second, address(1))
		if err := c.AnnounceKeySource(two); err != nil || c.Settings().KeySource != two {
			t.Fatalf("routes behind those of the others: %v", err)
		}
		time.Sleep(2 * time.Second)
		if err := d.AnnounceKeySource(other); !errors.Is(err, gossip.ErrRefused) || d.Settings().KeySource != one {
			t.Errorf("routes in the place of the other's: %v", err)
		}
		if err := d.AnnounceKeySource(two); err != nil {
			t.Errorf("the other's routes: %v", err)
		}
		if len(c.View().Members) != 2 || len(d.View().Members) != 2 {
			t.Errorf("%d and %d members", len(c.View().Members), len(d.View().Members))
		}
		third := b.config(0)
		third.Self.Name, third.Settings.KeySource, third.Seeds = "router-3", other, []string{address(0)}
		if _, err := b.listen(third, address(2)); !errors.Is(err, gossip.ErrRefused) {
			t.Errorf("a router with other routes: %v", err)
		}
	})
}

// routers starts two routers with the same routes, "1", and returns routes that follow on
// them and do not agree with each other. As workers they announce their routes when they have
// started.
func (b *bed) routers(role ring.Role) (c, d *gossip.Cluster, two, other string) {
	b.t.Helper()
	first, second := b.config(0), b.config(0)
	first.Self.Role, second.Self.Role = role, role
	first.Settings.KeySource = ring.RoutesKeySource([]string{"1"})
	second.Settings.KeySource = first.Settings.KeySource
	second.Self.Name, second.Seeds = "router-2", []string{address(0)}
	c, d = b.start(first, address(0)), b.start(second, address(1))
	for _, m := range []*gossip.Cluster{c, d} {
		if role != ring.RoleWorker {
			continue
		}
		if err := m.AnnounceKeySource(first.Settings.KeySource); err != nil {
			b.t.Fatal(err)
		}
	}
	return c, d, ring.RoutesKeySource([]string{"1", "2"}), ring.RoutesKeySource([]string{"1", "3"})
}

// Of two routers that change their routes at one moment, to different ones, one at most does; so it
// is with workers that have a public door.
func TestTrapRoutersChangeAtOneMoment(t *testing.T) {
	for _, role := range []ring.Role{ring.RoleRouter, ring.RoleWorker} {
		t.Run(role.String(), func(t *testing.T) { testRoutersChangeAtOneMoment(t, role) })
	}
}

func testRoutersChangeAtOneMoment(t *testing.T, role ring.Role) {
	for _, later := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond, 30 * time.Millisecond} {
		bubble(t, func(t *testing.T, b *bed) {
			c, d, two, other := b.routers(role)
			time.Sleep(5 * time.Second)
			done := make(chan error, 1)
			go func() { done <- c.AnnounceKeySource(two) }()
			time.Sleep(later)
			failed := d.AnnounceKeySource(other)
			if err := <-done; err == nil && failed == nil {
				t.Errorf("%v apart, both have changed", later)
			}
			for range 300 { // and nobody has to stand aside
				time.Sleep(10 * time.Millisecond)
				for _, m := range []*gossip.Cluster{c, d} {
					if err := m.View().KeyConflict; err != nil {
						t.Fatalf("%v apart: %v", later, err)
					}
				}
			}
			if c.Settings().KeySource == two && d.Settings().KeySource == other {
				t.Errorf("%v apart: both have theirs", later)
			}
		})
	}
}

// Routers that came to differ while they did not see each other: the one that changed
// later is to send nothing from when they meet, until the other one has gone.
func TestTrapRoutersMeetAgain(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		c, d, two, other := b.routers(ring.RoleRouter)
		b.net.Partition([]string{address(0)}, []string{address(1)})
		b.eventually(10*time.Second, "they lose each other", func() bool { return len(c.View().Members) == 1 && len(d.View().Members) == 1 })
		if err := d.AnnounceKeySource(other); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if err := c.AnnounceKeySource(two); err != nil {
			t.Fatal(err)
		}
		b.net.Heal()
		b.eventually(20*time.Second, "the later one stands aside", func() bool { return c.View().KeyConflict != nil })
		err := c.View().KeyConflict
		if !errors.Is(err, ring.ErrSettings) || !strings.Contains(err.Error(), `"router-2"`) || !strings.Contains(err.Error(), "--routes") || d.View().KeyConflict != nil {
			t.Errorf("conflict of the later one: %v, of the earlier one: %v", err, d.View().KeyConflict)
		}
		if err := c.AnnounceKeySource(two); !errors.Is(err, gossip.ErrRefused) {
			t.Errorf("it announces them again: %v", err)
		}
		for _, text := range []string{"this router sends no requests", "it must send no requests"} {
			b.eventually(2*time.Second, text, func() bool { return strings.Contains(b.logs.String(), text) })
		}
		d.Close()
		b.eventually(10*time.Second, "it goes on alone", func() bool { return c.View().KeyConflict == nil })
	})
}

// A worker's door may open while a router is there that cannot be asked, since it has died and gossip has not lost
// it: the worker waits until it has.
func TestDoorWaitsForARouterThatCannotBeAsked(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		c, _, _, _ := b.routers(ring.RoleRouter)
		b.start(b.config(2), address(2)) // by which they go on seeing each other
		w := b.start(b.config(3), address(3))
		b.eventually(5*time.Second, "all agree", func() bool { return agree(b.members, 4) })
		b.net.Cut(address(0), address(3))
		time.AfterFunc(10*time.Second, b.net.Heal)
		if err := w.AnnounceKeySource(c.Settings().KeySource); err != nil {
			t.Error(err)
		}
	})
}

// Routes do not change while another router is there that cannot be asked.
func TestRouterThatCannotBeAsked(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		c, d, two, _ := b.routers(ring.RoleRouter)
		b.start(b.config(2), address(2)) // by which they go on seeing each other
		b.eventually(5*time.Second, "all agree", func() bool { return agree(b.members, 3) })
		b.net.Cut(address(0), address(1))
		one := c.Settings().KeySource
		if err := c.AnnounceKeySource(two); !errors.Is(err, gossip.ErrRefused) || !strings.Contains(err.Error(), "does not answer whether") || c.Settings().KeySource != one {
			t.Errorf("%v, in force is %q", err, c.Settings().KeySource)
		}
		b.net.Heal()
		if err := c.AnnounceKeySource(two); err != nil || d.View().KeyConflict != nil {
			t.Errorf("once it can be asked: %v, %v", err, d.View().KeyConflict)
		}
	})
}
