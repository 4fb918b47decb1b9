package caddykeyway_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"

	caddykeyway "github.com/keyway-go/keyway/integrations/caddy"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/gossip"
)

// headerDoor names the address that Caddy has sent a request to.
const headerDoor = "X-Door"

// tellsDoor is the option of reverse_proxy that sets headerDoor.
const tellsDoor = "header_down " + headerDoor + " {http.reverse_proxy.upstream.hostport}"

// global are options that keep Caddy to its sites.
const global = `{
	admin off
	auto_https off
	persist_config off
	storage_check off
	storage_clean_interval off
	log {
		level ERROR
	}
}
`

// site returns a Caddyfile with the option dynamic keyway { … }, and others of reverse_proxy.
func site(addr, options, others string) string {
	return fmt.Sprintf(`%s
http://%s {
	reverse_proxy {
		dynamic keyway {
			%s
		}
		%s
	}
}
`, global, addr, options, others)
}

// load makes the Caddy of this process run by a Caddyfile, until the test's end.
func load(t *testing.T, text string) error {
	t.Helper()
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
	if err != nil {
		return err
	}
	t.Cleanup(func() { _ = caddy.Stop() })
	return caddy.Load(config, true)
}

// join joins a cluster that begins with it, or that of a seed. Its member has no door.
func join(t *testing.T, m ring.Member, seeds ...string) *gossip.Cluster {
	t.Helper()
	c, err := gossip.Start(t.Context(), gossip.Config{Self: m, Seeds: seeds})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Leave(context.Background()) })
	return c
}

// caddies returns the names of the members that are Caddy.
func caddies(c *gossip.Cluster) (names []string) {
	for _, m := range c.View().Members {
		if strings.HasPrefix(m.Name, "caddy-") {
			names = append(names, m.Name)
		}
	}
	return names
}

// Mistakes are found before the site is served, each by the name of its option.
func TestCaddyRefusesMistakes(t *testing.T) {
	seed := join(t, ring.Member{Name: "seed", Role: ring.RoleRouter, State: ring.StateActive}).Addr()
	bad := filepath.Join(t.TempDir(), "routes.yaml")
	if err := os.WriteFile(bad, []byte("routes: [{nam: x}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	right := "door_port 80\njoin " + seed
	for _, tt := range []struct{ options, others, want string }{
		{"join " + seed, "", "door_port is 0"},
		{"join " + seed + "\ndoor_port 65536", "", "door_port is 65536"},
		{"join " + seed + "\ndoor_port http", "", "door_port: "},
		{"join " + seed + "\ndoor_port 80 81", "", "argument"},
		{"door_port 80", "", "join is empty"},
		{"door_port 80\njoin", "", "argument"},
		{"door_port 80\njoin {env.KEYWAY_NOT_SET}", "", "join: "},
		{"door_port 80\njoin a:b:c", "", "(--join)"},
		{right + "\nkey order", "", `bad key source "order"`},
		{right + "\nkey host\nroutes " + bad, "", "key and routes exclude each other"},
		{right + "\nroutes " + bad, "", bad + ":1:"},
		{right + "\ngossip_key hunter2", "", "gossip_key: not a key of 16, 24 or 32 bytes"},
		{right + "\ngossip_open yes", "", "argument"},
		{right + "\ngossip 0.0.0.0:0", "", "has no key"},
		{right + "\npartitions 8", "", "number of partitions differs"},
		{right + "\nsession_ttl 1s", "", "session TTL differs"},
		{right + "\nsession_ttl soon", "", "session_ttl: "},
		{right + "\ncluster other", "", "cluster name differs"},
		{right + "\npeer_tls", "", "TLS between members differs"},
		{right + "\ndoors 80", "", `unrecognized option "doors"`},
		{right, "lb_policy round_robin", "selection policy"},
	} {
		if err := load(t, site(kit.FreeAddr(t), tt.options, tt.others)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %s: %v, want %s", tt.options, tt.others, err, tt.want)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error shows the key: %v", err)
		}
	}
}

// A reload with the same place in the cluster keeps the member, and its port of gossip. The last one leaves.
func TestCaddyIsOneMember(t *testing.T) {
	seed := join(t, ring.Member{Name: "seed", Role: ring.RoleRouter, State: ring.StateActive})
	t.Setenv("KEYWAY_TEST_SEED", seed.Addr())
	options := "door_port 80\njoin {env.KEYWAY_TEST_SEED}\nsession_ttl 10s\npartitions 4096\ngossip " + kit.FreeAddr(t)
	addr := kit.FreeAddr(t)
	var first []string
	for i, key := range []string{"header:X-Key", "path:/orders/{key}", "json:/order query:order"} {
		if err := load(t, site(addr, options+"\nkey "+key, "")); err != nil {
			t.Fatal(err)
		}
		kit.Eventually(t, "Caddy is a member", func() bool { return len(caddies(seed)) > 0 })
		if names := caddies(seed); i == 0 {
			first = names
		} else if len(names) != 1 || names[0] != first[0] {
			t.Fatalf("members after a reload: %v, before: %v", names, first)
		}
	}
	kit.Eventually(t, "without a worker, 503", func() bool {
		res, err := http.Get("http://" + addr + "/") // Caddy resets connections that a server before the reload had to accept
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusServiceUnavailable
	})
	if err := caddy.Stop(); err != nil {
		t.Fatal(err)
	}
	kit.Eventually(t, "Caddy has left", func() bool { return len(caddies(seed)) == 0 })
}

// The doors are those of the active workers, at the host where members reach these, the owner's first.
func TestDoorsOfAnOwner(t *testing.T) {
	seed := join(t, ring.Member{Name: "router", Role: ring.RoleRouter, State: ring.StateActive})
	owners := make(map[string]string) // hosts of the workers
	for i := range 5 {
		m := ring.Member{Name: fmt.Sprint("w", i), Incarnation: fmt.Sprint("i", i), Role: ring.RoleWorker, State: ring.StateActive, Addr: fmt.Sprintf("[2001:db8::%d]:9000", i)}
		if i == 3 {
			m.State = ring.StateLeaving
		}
		if i == 4 {
			m.Addr = "{env.HOME}:9000"
		}
		join(t, m, seed.Addr())
		owners[m.Name], _, _ = net.SplitHostPort(m.Addr)
	}
	up := provision(t, seed.Addr())
	kit.Eventually(t, "all workers are there", func() bool { return len(seed.View().Workers()) == 4 })
	first := make(map[string]int)
	for i := range 200 {
		key := fmt.Sprint("order-", i)
		m, _ := seed.View().Owner(seed.View().Table.Partition(key))
		kit.Eventually(t, "the owner of "+key+" comes first", func() bool {
			doors := up(t, "X-Key", key)
			return m.Name == "w4" || len(doors) == 3 && doors[0] == net.JoinHostPort(owners[m.Name], "80")
		})
		doors := up(t, "X-Key", key)
		first[m.Name]++
		for i, d := range doors {
			for _, e := range doors[:i] {
				if d == e {
					t.Errorf("%s twice in %v", d, doors)
				}
			}
			if strings.ContainsAny(d, "{3") {
				t.Errorf("%s is the door of a worker that leaves, or has a placeholder", d)
			}
		}
	}
	if len(first) != 4 {
		t.Errorf("owners %v, want four", first)
	}
	// Any door answers what has no key, or two.
	others := make(map[string]bool)
	for range 20 {
		for _, headers := range [][]string{nil, {"X-Key", "a", "X-Key", "b"}} {
			doors := up(t, headers...)
			if len(doors) == 0 {
				t.Fatalf("%v: no doors", headers)
			}
			others[doors[0]] = true
		}
	}
	if len(others) != 3 {
		t.Errorf("without a key: %v, want the three doors", others)
	}
}

// provision returns the addresses of the doors for a request with these headers.
func provision(t *testing.T, seed string) func(t *testing.T, headers ...string) []string {
	t.Helper()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	t.Cleanup(cancel)
	up := &caddykeyway.Upstreams{Join: []string{seed}, DoorPort: 80}
	if err := up.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = up.Cleanup() })
	return func(t *testing.T, headers ...string) (addrs []string) {
		t.Helper()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		for i := 0; i < len(headers); i += 2 {
			r.Header.Add(headers[i], headers[i+1])
		}
		doors, err := up.GetUpstreams(r)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range doors {
			addrs = append(addrs, d.Dial)
		}
		return addrs
	}
}

// A request whose owner's door cannot be reached comes to another one, with its body, which was read for the key.
func TestBodyAfterAFailedDial(t *testing.T) {
	got := make(chan string, 1)
	door := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		got <- fmt.Sprint(len(body), " bytes, ", err)
	}))
	defer door.Close()
	_, port, _ := net.SplitHostPort(door.Listener.Addr().String())
	seed := join(t, ring.Member{Name: "w1", Incarnation: "i1", Role: ring.RoleWorker, State: ring.StateActive, Addr: "127.0.0.1:9000"})
	join(t, ring.Member{Name: "w2", Incarnation: "i2", Role: ring.RoleWorker, State: ring.StateActive, Addr: "127.0.0.2:9000"}, seed.Addr())
	kit.Eventually(t, "both workers are there", func() bool { return len(seed.View().Workers()) == 2 })
	addr := kit.FreeAddr(t)
	options := fmt.Sprintf("join %s\ndoor_port %s\nkey json:/order", seed.Addr(), port)
	if err := load(t, site(addr, options, "lb_retries 20\n\t\tlb_try_interval 1ms\n\t\tfail_duration 50ms")); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		body := fmt.Sprintf(`{"order": "%d", "note": %q}`, i, strings.Repeat("x", 30_000))
		r := request(t, http.MethodPost, "http://"+addr, body)
		r.ContentLength = -1 // Caddy must read to its end
		r.Header.Set("Content-Type", "application/json")
		res, text := kit.Do(t, http.DefaultClient, r)
		if res.StatusCode != http.StatusOK {
			t.Fatalf("%s %s", res.Status, text)
		}
		if g, want := <-got, fmt.Sprint(len(body), " bytes, <nil>"); g != want {
			t.Errorf("the door got %s, want %s", g, want)
		}
	}
}
