package gossip

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/keyway-go/keyway/ring"
)

func TestMemberlistsLog(t *testing.T) {
	for line, want := range map[string]string{
		"[ERR] memberlist: something": "level=DEBUG msg=\"[ERR] memberlist: something\"\n",
		"[ERR] memberlist: discarding stream with unacceptable label \"x\": from=1.2.3.4:5": "level=WARN msg=\"a member of another memberlist program or cluster sends to this address\" " +
			"memberlist=\"[ERR] memberlist: discarding stream with unacceptable label \\\"x\\\": from=1.2.3.4:5\"\n",
	} {
		var out bytes.Buffer
		logger := newLogger(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{
			Level: slog.LevelDebug,
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			},
		})))
		logger.Print(line)
		if out.String() != want {
			t.Errorf("%s\nis logged as\n%swant\n%s", line, &out, want)
		}
	}
}

func TestTranslationsAreRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		logger := newLogger(slog.New(slog.NewTextHandler(&out, nil)))
		for range 125 {
			logger.Print("[ERR] memberlist: Decrypt packet failed: " + noKeyFits + " from=1.2.3.4:5")
			time.Sleep(time.Second)
		}
		if n := strings.Count(out.String(), "\n"); n != 3 {
			t.Errorf("%d lines in two minutes and five seconds, want 3", n)
		}
	})
}

func TestThrottleIsBounded(t *testing.T) {
	var th throttle
	for i := range 10 * throttleBound {
		th.pass(fmt.Sprint(i), time.Time{})
	}
	if n := len(th.last); n > throttleBound {
		t.Errorf("%d entries", n)
	}
}

func TestExplain(t *testing.T) {
	for text, want := range map[string]struct {
		refused bool
		text    string
	}{
		"failed to join 1.2.3.4:5: remote error: " + noKeyFits:                        {true, "--gossip-key"},
		"failed to join 1.2.3.4:5: received invalid msgType (72), expected x":         {true, "--gossip address"},
		"failed to join 1.2.3.4:5: EOF":                                               {false, "--gossip address"},
		"failed to join 1.2.3.4:5: read tcp 1.2.3.4:5->1.2.3.4:6: i/o timeout":        {false, "takes connections but does not answer"},
		"failed to join 1.2.3.4:5: dial tcp 1.2.3.4:5: connect: connection refused":   {false, "cannot be reached (--join)"},
		"failed to join 1.2.3.4:5: gossip: refused: cluster name differs: \"a\" at x": {true, "gossip: refused: seed 1.2.3.4:5: cluster name differs"},
		"failed to join 1.2.3.4:5: remote error: " + peerEncrypted:                    {true, "does not encrypt gossip, this member does"},
		"failed to join 1.2.3.4:5: " + peerPlain:                                      {true, "does not encrypt gossip, this member does"},
		"failed to join 1.2.3.4:5: " + peerEncrypted:                                  {true, "encrypts gossip, this member does not"},
	} {
		got := explain("1.2.3.4:5", errors.New(text))
		if errors.Is(got, ErrRefused) != want.refused || !strings.Contains(got.Error(), want.text) || !strings.Contains(got.Error(), "1.2.3.4:5") {
			t.Errorf("%s\nis explained as\n%v\nwant %q", text, got, want.text)
		}
	}
	cause := io.EOF
	if got := explain("a", fmt.Errorf("failed: %w", cause)); !errors.Is(got, cause) {
		t.Errorf("%v does not wrap its cause", got)
	}
}

func TestAddedSeedsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, nobody := newJoiner(nil, []string{"seed"}), ring.NewView(nil, nil)
		var addrs []string
		for i := range 300 {
			addrs = append(addrs, fmt.Sprintf("10.0.%d.%d:7946", i/256, i%256))
		}
		j.add(addrs)
		if n := len(j.targets); n != addedBound+1 {
			t.Errorf("%d targets, want %d", n, addedBound+1)
		}
		time.Sleep(addedAge / 2)
		again := j.due(time.Now(), nobody)[:1]
		for _, addr := range j.due(time.Now(), nobody) {
			if addr != "seed" {
				again = []string{addr}
			}
		}
		j.add(again)
		time.Sleep(addedAge/2 + time.Second)
		due := j.due(time.Now(), nobody)
		if len(due) != 2 || j.targets["seed"] == nil || j.targets[again[0]] == nil {
			t.Errorf("later there are %v, want the seed and %v", due, again)
		}
		both := ring.NewView(nil, []ring.Member{{Gossip: "seed"}, {Gossip: again[0]}})
		if due := j.due(time.Now(), both); !slices.Equal(due, []string{"seed"}) {
			t.Errorf("%v are tried while both are members, want the seed alone, which may be a name of several", due)
		}
	})
}

func TestSplitSeed(t *testing.T) {
	for addr, want := range map[string]string{
		"router:7000":  "router 7000",
		"router":       "router 7946",
		"10.0.0.1":     "10.0.0.1 7946",
		"[::1]:7000":   "::1 7000",
		"::1":          "::1 7946",
		"a:b:c":        "error",
		"router:":      "error",
		"router:70000": "error",
		":7946":        "error",
		"":             "error",
	} {
		host, port, err := splitSeed(addr)
		got := fmt.Sprint(host, " ", port)
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%q is %s (%v), want %s", addr, got, err, want)
		}
	}
}

func TestOutwardAddress(t *testing.T) {
	at, err := outward()
	if err != nil || !at.IsValid() || at.IsUnspecified() {
		t.Errorf("outward: %v, %v", at, err)
	}
}

func TestMemberName(t *testing.T) {
	for node, want := range map[string]string{nodeName("a@b", "BOOT"): "a@b", "bare": "bare"} {
		if got := memberName(node); got != want {
			t.Errorf("memberName(%q) = %q, want %q", node, got, want)
		}
	}
}

// Two nodes of one name and boot id, which takes a broken source of randomness
// or a copied memory, are reported by who knows one of them.
func TestConflict(t *testing.T) {
	Bubble(t, func(t *testing.T, n *Network) {
		var out bytes.Buffer
		known := startNode(t, n, "10.0.0.1:7946", slog.New(slog.NewTextHandler(&out, nil)))
		other := startNode(t, n, "10.0.0.2:7946", slog.New(slog.DiscardHandler))
		defer known.Close()
		defer other.Close()
		mc := timing()
		mc.Name, mc.Transport, mc.Logger = other.node, n.Listen("10.0.0.3:7946"), newLogger(other.log)
		mc.Delegate = &delegate{other}
		twin, err := memberlist.Create(mc)
		if err != nil {
			t.Fatal(err)
		}
		defer twin.Shutdown()
		known.AddSeeds([]string{"10.0.0.2:7946"})
		time.Sleep(5 * time.Second)
		if _, err := twin.Join([]string{"10.0.0.1:7946"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		known.Close()
		if log := out.String(); !strings.Contains(log, "two members claim to be one node") ||
			!strings.Contains(log, "10.0.0.2:7946") || !strings.Contains(log, "10.0.0.3:7946") {
			t.Errorf("no word of it:\n%s", log)
		}
	})
}

func startNode(t *testing.T, n *Network, addr string, logger *slog.Logger) *Cluster {
	c, err := Start(t.Context(), Config{
		Self:      ring.Member{Name: addr, Role: ring.RoleWorker},
		Logger:    logger,
		Transport: n.Listen(addr),
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNoNewsNoView(t *testing.T) {
	b, err := ring.NewBuilder(ring.Config{})
	if err != nil {
		t.Fatal(err)
	}
	o := newOwner(&Cluster{}, b, ring.Member{Name: "a", Role: ring.RoleWorker, State: ring.StateActive}, keys{})
	o.publish()
	before := o.c.current.Load()
	o.publish()
	if o.c.current.Load() != before {
		t.Error("a new view without a difference")
	}
}

// A ring that cannot be computed must not stop the owner.
func TestRingThatCannotBe(t *testing.T) {
	var out bytes.Buffer
	b, err := ring.NewBuilder(ring.Config{})
	if err != nil {
		t.Fatal(err)
	}
	o := newOwner(&Cluster{log: slog.New(slog.NewTextHandler(&out, nil))}, b, ring.Member{Name: "a", Role: ring.RoleWorker, State: ring.StateActive}, keys{})
	o.publish()
	o.peers["x"] = peer{Member: ring.Member{Role: ring.RoleWorker, State: ring.StateActive}} // without a name
	o.publish()
	v := o.c.current.Load().view
	if len(v.Members) != 2 || len(v.Table.Members()) != 1 || !strings.Contains(out.String(), "keeps its former members") {
		t.Errorf("%d members, %v on the ring; log %s", len(v.Members), v.Table.Members(), &out)
	}
}

// The highest epoch that any member told of outlives that member.
func TestTheHighestEpochIsKept(t *testing.T) {
	b, err := ring.NewBuilder(ring.Config{})
	if err != nil {
		t.Fatal(err)
	}
	o := newOwner(&Cluster{}, b, ring.Member{Name: "a", Role: ring.RoleRouter, State: ring.StateActive}, keys{})
	o.peers["x"] = peer{Member: ring.Member{Name: "x", Role: ring.RoleWorker, State: ring.StateActive, Epoch: 9}}
	o.publish()
	if o.self.Epoch != 0 {
		t.Errorf("tells of epoch %d, though another member does", o.self.Epoch)
	}
	delete(o.peers, "x")
	o.publish()
	if o.self.Epoch != 9 {
		t.Errorf("tells of epoch %d, want 9", o.self.Epoch)
	}
}
