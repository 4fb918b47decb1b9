package gossip_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/gossip"
)

// await waits until cond holds for a cluster's view.
func await(t *testing.T, c *gossip.Cluster, within time.Duration, what string, cond func(*ring.View) bool) {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	for {
		changed := c.Changed()
		if cond(c.View()) {
			return
		}
		select {
		case <-changed:
		case <-deadline.C:
			t.Fatalf("not within %v: %s; %s sees %s", within, what, c.Addr(), names(c.View()))
		}
	}
}

func agreeing(n int) func(*ring.View) bool {
	return func(v *ring.View) bool {
		for _, m := range v.Members {
			if m.View != v.Digest {
				return false
			}
		}
		return len(v.Members) == n
	}
}

func worker(name string, seeds ...string) gossip.Config {
	return gossip.Config{
		Self:     ring.Member{Name: name, Incarnation: name + "-1", Role: ring.RoleWorker, State: ring.StateActive},
		Settings: ring.Settings{Ring: smallRing},
		Seeds:    seeds,
		Logger:   (&logs{}).logger(),
	}
}

func start(t *testing.T, cfg gossip.Config) *gossip.Cluster {
	t.Helper()
	c, err := gossip.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestLoopback(t *testing.T) {
	before := runtime.NumGoroutine()
	key := []byte("0123456789abcdef")
	cfg := worker("a")
	cfg.Keyring = [][]byte{key}
	all := []*gossip.Cluster{start(t, cfg)}
	for _, name := range []string{"b", "c", "d"} {
		_, port, err := net.SplitHostPort(all[0].Addr())
		if err != nil {
			t.Fatal(err)
		}
		cfg := worker(name, net.JoinHostPort("localhost", port))
		cfg.Keyring = [][]byte{key}
		all = append(all, start(t, cfg))
	}
	for _, c := range all {
		await(t, c, time.Minute, "four members agree", agreeing(4))
	}
	if err := all[1].Announce(func(m *ring.Member) { m.State = ring.StateJoining }); err != nil {
		t.Fatal(err)
	}
	await(t, all[3], time.Minute, "three are on the ring", func(v *ring.View) bool { return len(v.Table.Members()) == 3 })
	if err := all[2].Leave(t.Context()); err != nil {
		t.Errorf("Leave: %v", err)
	}
	await(t, all[3], time.Minute, "one left", agreeing(3))
	all[0].Close()
	await(t, all[3], time.Minute, "one crashed", agreeing(2))
	for _, c := range all {
		c.Close()
	}
	// memberlist's last probes end by themselves.
	for deadline := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<16)
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		}
	}
}

func TestAddressInUse(t *testing.T) {
	first := start(t, worker("a"))
	cfg := worker("b")
	cfg.Bind = first.Addr()
	_, err := gossip.Start(t.Context(), cfg)
	if !errors.Is(err, gossip.ErrBind) || !strings.Contains(err.Error(), first.Addr()) || !strings.Contains(err.Error(), "--gossip") {
		t.Errorf("Start: %v, want ErrBind with the address and the flag", err)
	}
}

func TestForeignAddress(t *testing.T) {
	cfg := worker("b")
	cfg.Open, cfg.Bind = true, "192.0.2.1:7946" // reserved for documentation; not this machine's
	_, err := gossip.Start(t.Context(), cfg)
	if !errors.Is(err, gossip.ErrBind) || !strings.Contains(err.Error(), cfg.Bind) {
		t.Errorf("Start: %v, want ErrBind with the address", err)
	}
}

func TestAdvertise(t *testing.T) {
	cfg := worker("a")
	cfg.Bind, cfg.Advertise = "127.0.0.1:0", "localhost:7777"
	c := start(t, cfg)
	if got := c.View().Members[0].Gossip; got != "127.0.0.1:7777" || got != c.Addr() || c.Self() != c.View().Members[0] {
		t.Errorf("advertises %s and %s", got, c.Addr())
	}
}

// Without a key nobody else's machine is let in, unless Open says so, which warns.
func TestTrapGossipWithoutAKey(t *testing.T) {
	key := [][]byte{make([]byte, 32)}
	for name, tc := range map[string]struct {
		bind, advertise string
		keyring         [][]byte
		open            bool
		refused, warns  bool
	}{
		"loopback":                      {bind: "127.0.0.1:0"},
		"loopback by name":              {bind: "localhost:0"},
		"every address":                 {bind: "0.0.0.0:0", refused: true},
		"every address, without a host": {bind: ":0", refused: true},
		"every address, said otherwise": {bind: "0.0.0.0:0", advertise: "127.0.0.1", refused: true},
		"another address is told":       {bind: "127.0.0.1:0", advertise: "192.0.2.1", refused: true},
		"with a key":                    {bind: "0.0.0.0:0", keyring: key},
		"on purpose":                    {bind: "0.0.0.0:0", open: true, warns: true},
		"a key, too":                    {bind: "0.0.0.0:0", keyring: key, open: true},
	} {
		t.Run(name, func(t *testing.T) {
			var log logs
			cfg := worker("a")
			cfg.Bind, cfg.Advertise, cfg.Keyring, cfg.Open, cfg.Logger = tc.bind, tc.advertise, tc.keyring, tc.open, log.logger()
			c, err := gossip.Start(t.Context(), cfg)
			if tc.refused {
				if !errors.Is(err, gossip.ErrConfig) || !strings.Contains(err.Error(), "--gossip-key") || !strings.Contains(err.Error(), "openssl rand") {
					t.Errorf("Start: %v, want ErrConfig that says what to do", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if strings.Contains(log.String(), "--gossip-key") != tc.warns {
				t.Errorf("%s", &log)
			}
			if strings.HasPrefix(c.Addr(), "0.0.0.0") || strings.HasSuffix(c.Addr(), ":0") {
				t.Errorf("advertises %s", c.Addr())
			}
		})
	}
}

// impostor takes connections at the address that it returns and answers each
// with text. It stops reading after that.
func impostor(t *testing.T, text string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Read(make([]byte, 1<<16))
			conn.Write([]byte(text))
			conn.Close()
		}
	}()
	return l.Addr().String()
}

// The usual mistake: to join an address that takes requests.
func TestSeedThatSpeaksHTTP(t *testing.T) {
	addr := impostor(t, "HTTP/1.1 400 Bad Request\r\n\r\n")
	_, err := gossip.Start(t.Context(), worker("a", addr))
	if !errors.Is(err, gossip.ErrRefused) || !strings.Contains(err.Error(), addr) || !strings.Contains(err.Error(), "--gossip address") {
		t.Errorf("Start: %v", err)
	}
}

func TestSeedThatHangsUp(t *testing.T) {
	var log logs
	cfg := worker("a", impostor(t, ""))
	cfg.Logger = log.logger()
	start(t, cfg)
	if !strings.Contains(log.String(), cfg.Seeds[0]) || !strings.Contains(log.String(), "--gossip address") {
		t.Errorf("no word of the seed:\n%s", &log)
	}
}

// TestMain runs the test's binary as a member in a process of its own.
func TestMain(m *testing.M) {
	seed := os.Getenv("KEYWAY_TEST_MEMBER")
	if seed == "" {
		os.Exit(m.Run())
	}
	c, err := gossip.Start(context.Background(), worker("paused", seed))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(c.Addr())
	bufio.NewReader(os.Stdin).ReadByte() // until the test ends
	c.Close()
}

// A process that is stopped for longer than it takes to be missed comes back
// by itself when it goes on.
func TestPausedProcess(t *testing.T) {
	c := start(t, worker("a"))
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "KEYWAY_TEST_MEMBER="+c.Addr())
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer stdin.Close()
	defer cmd.Process.Signal(syscall.SIGCONT)
	await(t, c, time.Minute, "the process joins", agreeing(2))

	cmd.Process.Signal(syscall.SIGSTOP)
	start := time.Now()
	await(t, c, time.Minute, "the process is missed", agreeing(1))
	t.Logf("missed after %v", time.Since(start))
	cmd.Process.Signal(syscall.SIGCONT)
	start = time.Now()
	await(t, c, time.Minute, "the process is back", agreeing(2))
	t.Logf("back after %v", time.Since(start))
}
