package router_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/certs"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

// door is a worker with a router in its process.
type door struct {
	*site.Worker
	*site.Front
	name string
}

// newDoors starts workers with a router each, whose app names the worker. A router that goes to its
// own worker over the network fails the test.
func newDoors(t *testing.T, n int, ttl time.Duration, peers *gateway.PeerTLS, app func(name string) http.HandlerFunc, front way) (c *site.Site, all []*door) {
	t.Helper()
	c = site.NewWith(t, ring.Settings{TTL: ttl, Ring: ring.Config{Partitions: 16}, PeerTLS: peers != nil})
	for i := range n {
		d := &door{name: fmt.Sprint("w", i+1)}
		d.Worker = c.StartNamed(d.name, func(cfg *worker.Config) {
			cfg.PeerTLS, cfg.Logger = peers, slog.New(slog.DiscardHandler) // connections end after the test
			cfg.Members.(*hub.Handle).Keys = [][]byte{[]byte(strings.Repeat("k", 32))}
		})
		addr := d.Listen(t, d.Handler(app(d.name)))
		rt := site.NewRouter(t, router.Config{Members: d.Member, PeerTLS: peers, Own: d.Worker.Server.Dial, Dial: func(ctx context.Context, network, to string) (net.Conn, error) {
			if to == addr {
				t.Errorf("%s goes to its own worker over the network", d.name)
			}
			return new(net.Dialer).DialContext(ctx, network, to)
		}})
		d.Front = front(t, rt)
		all = append(all, d)
	}
	kit.Eventually(t, "each serves what the ring of all of them gives it", func() bool {
		return !slices.ContainsFunc(all, func(d *door) bool {
			s := d.Status()
			return s.Wanted == 0 || s.Arriving+s.Departing > 0
		})
	})
	return c, all
}

// ask sends a request for a key through the door.
func (d *door) ask(t *testing.T, method, path, key string, body io.Reader, header ...string) (*http.Response, string) {
	t.Helper()
	req := kit.Must(http.NewRequestWithContext(t.Context(), method, d.URL+path, body))
	req.Header.Set("X-Key", key)
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	return kit.Do(t, d.HTTP, req)
}

// Each door takes the keys of all workers, in every form of a request, and only those of others cross
// the network, whether the members use TLS or not.
func TestOwnKeysStayInTheProcess(t *testing.T) {
	eachWay(t, func(t *testing.T, front way) {
		for name, peers := range map[string]*gateway.PeerTLS{"plain": nil, "TLS": kit.PeerTLS(t, kit.Must(certs.NewCA(t.TempDir(), "ours")), nil)} {
			t.Run(name, func(t *testing.T) {
				t.Parallel() // the start of a cluster waits
				testOwnKeysStayInTheProcess(t, peers, front)
			})
		}
	})
}

func testOwnKeysStayInTheProcess(t *testing.T, peers *gateway.PeerTLS, front way) {
	_, doors := newDoors(t, 3, kit.TTL, peers, func(name string) http.HandlerFunc {
		return func(rw http.ResponseWriter, r *http.Request) {
			key, _ := gateway.KeyFromHeader(r.Header)
			rw.Header().Set("X-Worker", name)
			switch {
			case r.Header.Get(gateway.HeaderToken) == "":
				t.Errorf("%s runs %q without a token", name, key)
			case r.Header.Get("Upgrade") != "":
				conn, in, err := http.NewResponseController(rw).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n%s\n", name)
				io.Copy(conn, in)
			case r.Method == http.MethodPost:
				io.Copy(rw, r.Body)
			default:
				fmt.Fprint(rw, key)
			}
		}
	}, front)
	large := strings.Repeat("0123456789abcdef", 64<<10)
	owners := make(map[string]int)
	for i := range 24 {
		key := fmt.Sprint("order-", i)
		owner := ""
		for _, d := range doors {
			res, got := d.ask(t, "GET", "/", key, nil)
			at := res.Header.Get("X-Worker")
			if res.StatusCode != http.StatusOK || got != key || owner != "" && at != owner {
				t.Errorf("%s at %s: %s, %q by %s, want %s", key, d.name, res.Status, got, at, owner)
			}
			owner = at
		}
		owners[owner]++
		d := doors[i%len(doors)]
		if i >= 2*len(doors) {
			continue // each door has had each form of a body, and a tunnel, for two keys
		}
		for form, body := range map[string]io.Reader{"short": strings.NewReader("short"), "of known length": strings.NewReader(large), "streamed": io.MultiReader(strings.NewReader(large))} {
			res, got := d.ask(t, "POST", "/", key, body)
			if want := large; res.StatusCode != http.StatusOK || res.Header.Get("X-Worker") != owner || got != want && got != "short" {
				t.Errorf("a body, %s, at %s for %s: %s, %d bytes by %s", form, d.name, owner, res.Status, len(got), res.Header.Get("X-Worker"))
			}
		}
		if d.HTTP2 {
			continue
		}
		conn := kit.Dial(t, d.URL)
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: h\r\nX-Key: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", key)
		in := bufio.NewReader(conn)
		if res := kit.Must(http.ReadResponse(in, nil)); res.StatusCode != http.StatusSwitchingProtocols {
			t.Fatal(res.Status)
		}
		io.WriteString(conn, "hello\n")
		for _, want := range []string{owner + "\n", "hello\n"} {
			if line, err := in.ReadString('\n'); line != want || err != nil {
				t.Errorf("%q, %v, want %q", line, err, want)
			}
		}
		conn.Close()
	}
	if len(owners) != len(doors) {
		t.Errorf("owners %v, want all %d", owners, len(doors))
	}
}

// What marks a request as a member's cannot come from a client, at no entrance, and an app that
// passes on all that it gets marks no request of its own.
func TestTrapMarksOfMembersAreNotTaken(t *testing.T) { eachWay(t, testMarksAreNotTaken) }

func testMarksAreNotTaken(t *testing.T, front way) {
	var nested atomic.Pointer[door] // through which the app calls
	_, doors := newDoors(t, 2, kit.TTL, nil, func(name string) http.HandlerFunc {
		return func(rw http.ResponseWriter, r *http.Request) {
			key, _ := gateway.KeyFromHeader(r.Header)
			if r.URL.Path != "/nested" {
				fmt.Fprintf(rw, "%s %v", key, r.Header[http.CanonicalHeaderKey(gateway.HeaderToken)])
				return
			}
			d := nested.Load()
			req := kit.Must(http.NewRequestWithContext(r.Context(), "GET", d.URL+"/", nil))
			req.Header = r.Header.Clone()
			req.Header.Set("X-Key", r.Header.Get("X-Inner"))
			res, err := d.HTTP.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			body, _ := io.ReadAll(res.Body)
			fmt.Fprint(rw, res.StatusCode, " ", string(body))
		}
	}, front)
	forged := []string{
		"Keyway-Key", "other", "keyway-key", "another", "Keyway_Key", "third", "Keyway-Token", "1", "Keyway-Epoch", "9000000000", "Keyway-Partition", "3",
		"Keyway-Policy", "AAAA", "Keyway-Client", "7", "Keyway-Refused", "not-owner", "Keyway-Owner", "x", "Keyway-Forwarded", "1",
	}
	for _, d := range doors {
		for i := range 8 {
			key := fmt.Sprint("k", i)
			for _, body := range []io.Reader{nil, strings.NewReader("x"), io.MultiReader(strings.NewReader(strings.Repeat("x", 100<<10)))} {
				res, got := d.ask(t, "POST", "/", key, body, forged...)
				ran, token, _ := strings.Cut(got, " ")
				if res.StatusCode != http.StatusOK || ran != key || token == "[1]" || strings.Count(token, " ") > 0 {
					t.Errorf("forged marks at %s: %s %q, want an execution of %s", d.name, res.Status, got, key)
				}
			}
			nested.Store(doors[i%2])
			if _, got := d.ask(t, "GET", "/nested", key, nil, "X-Inner", "inner"); !strings.HasPrefix(got, "200 inner [") {
				t.Errorf("an app's call for another key: %q", got)
			}
			if _, got := d.ask(t, "GET", "/nested", key, nil, "X-Inner", key); !strings.HasPrefix(got, "508 ") {
				t.Errorf("an app's call for the key that it holds: %q", got)
			}
		}
		// A stranger speaks neither the link at the door, nor HTTP or the link at the worker's port.
		settings := d.Member.Settings()
		for where, addr := range map[string]string{"door": d.Listener.Addr().String(), "worker": d.Member.Self().Addr} {
			client := &link.Client{Addr: addr, Config: link.Config{Cluster: settings.Cluster, Digest: settings.Digest()}}
			if _, err := client.Do(t.Context(), &link.Request{Method: "GET", Target: "/", Host: "h", Key: "k"}); err == nil || !errors.Is(err, link.ErrNotStarted) {
				t.Errorf("the link of a stranger at the %s: %v", where, err)
			}
			client.Close()
		}
		if res, body := kit.Fetch(t, "http://"+d.Member.Self().Addr, append(forged, "X-Key", "k")...); res.StatusCode != http.StatusForbidden {
			t.Errorf("HTTP of a stranger at the worker's port: %s %s", res.Status, body)
		}
	}
}

// A door serves on while its worker gives its keys away and takes them back, and when another one
// dies. Only the requests that ran there fail, and no two of one key overlap.
func TestDoorsWhileOwnersMove(t *testing.T) {
	var mu sync.Mutex
	running := make(map[string]string)
	var dying atomic.Bool
	c, doors := newDoors(t, 3, time.Second, nil, func(name string) http.HandlerFunc {
		return func(rw http.ResponseWriter, r *http.Request) {
			key := r.Header.Get("X-Key")
			mu.Lock()
			if other, overlaps := running[key]; overlaps {
				t.Errorf("%s runs at %s and %s", key, other, name)
			}
			running[key] = name
			mu.Unlock()
			time.Sleep(time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			delete(running, key)
			fmt.Fprint(rw, name)
		}
	}, site.ThroughServer)
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for i := range 12 {
		d := doors[i%2] // the third dies
		clients.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if res, body := d.ask(t, "GET", "/", fmt.Sprint("k", (i+n)%40), nil); res.StatusCode != http.StatusOK && !(dying.Load() && res.StatusCode == http.StatusBadGateway) {
					t.Errorf("%s: %s %s", d.name, res.Status, body)
				}
			}
		})
	}
	for range 2 {
		if err := doors[0].LeaveRing(t.Context()); err != nil {
			t.Error(err)
		}
		kit.Eventually(t, "the door gives its keys away", func() bool {
			return doors[0].Serving() == 0 && doors[1].Serving()+doors[2].Serving() == c.Ring.Partitions
		})
		if res, by := doors[0].ask(t, "GET", "/", "k", nil); res.StatusCode != http.StatusOK || by == doors[0].name {
			t.Errorf("at a door without keys: %s, by %s", res.Status, by)
		}
		if err := doors[0].JoinRing(); err != nil {
			t.Error(err)
		}
		kit.Eventually(t, "it has keys again", func() bool { return doors[0].Serving() > 0 })
	}
	dying.Store(true)
	doors[2].Worker.Close()
	doors[2].Member.Vanish()
	kit.Eventually(t, "the others take over", func() bool { return doors[0].Serving()+doors[1].Serving() == c.Ring.Partitions })
	stop()
	clients.Wait()
}
