package cluster_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/internal/test/kit"
)

// appVariable makes the test's binary an app: the address that it listens on.
const appVariable = "KEYWAY_TEST_APP"

func TestMain(m *testing.M) {
	if addr := os.Getenv(appVariable); addr != "" {
		if err := runApp(addr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// runApp is an app that works on each request for some milliseconds, for which it
// prints a dot first, and ends in order by SIGTERM.
func runApp(addr string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	s := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		os.Stdout.Write([]byte("."))
		io.Copy(io.Discard, r.Body)
		time.Sleep(3 * time.Millisecond)
		io.WriteString(rw, addr)
	})}
	ended := make(chan error, 1)
	go func() {
		<-ctx.Done()
		ended <- s.Shutdown(context.Background())
	}()
	fmt.Println("listens")
	if err := s.Serve(l); err != http.ErrServerClosed {
		return err
	}
	return <-ended
}

// app is an app in a process of its own.
type app struct {
	addr string
	cmd  *exec.Cmd
	runs atomic.Int64  // requests that it has begun with
	read chan struct{} // closed when all that it has printed is counted
}

func (a *app) start(t *testing.T) {
	t.Helper()
	a.await()
	a.cmd = exec.Command(os.Args[0])
	a.cmd.Env = append(os.Environ(), appVariable+"="+a.addr)
	a.cmd.Stderr = t.Output()
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.cmd.Process.Kill(); a.await() })
	if _, err := io.ReadFull(out, make([]byte, len("listens\n"))); err != nil {
		t.Fatal("the app does not listen: ", err)
	}
	a.read = make(chan struct{})
	go func(read chan struct{}) {
		defer close(read)
		dots := make([]byte, 64)
		for {
			n, err := out.Read(dots)
			a.runs.Add(int64(n))
			if err != nil {
				return
			}
		}
	}(a.read)
}

// await waits until an app that has been told to end has.
func (a *app) await() {
	if a.read != nil {
		<-a.read
		_ = a.cmd.Wait()
		a.read = nil
	}
}

func (a *app) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := a.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// crowd is clients that send one request after the other.
type crowd struct {
	t    *testing.T
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu       sync.Mutex
	statuses map[int]int    // since expect was last called
	ok, lost int            // before
	apps     map[string]int // that have answered, since await was last called
	answered chan struct{}  // receives when there was an answer of an app; holds one element
}

const crowdSize = 20

// startCrowd starts clients, which have their keys for themselves but for one that they
// share.
func startCrowd(d *demo) *crowd {
	ctx, stop := context.WithCancel(d.t.Context())
	c := &crowd{t: d.t, stop: stop, statuses: make(map[int]int), apps: make(map[string]int), answered: make(chan struct{}, 1)}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: crowdSize}}
	for i := range crowdSize {
		c.wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				method, body := http.MethodGet, ""
				if n%2 == 1 {
					method, body = http.MethodPost, "a body"
				}
				req, err := http.NewRequestWithContext(d.t.Context(), method, "http://"+d.router.Listen, strings.NewReader(body))
				if err != nil {
					c.t.Error(err)
					return
				}
				key := fmt.Sprintf("k%d-%d", i, n%50)
				if n%10 == 0 {
					key = "of all"
				}
				req.Header.Set("X-Key", key)
				res, err := client.Do(req)
				if err != nil {
					c.t.Error(err)
					return
				}
				text, err := io.ReadAll(res.Body)
				res.Body.Close()
				if err != nil {
					c.t.Error(err)
				}
				c.note(res.StatusCode, string(text))
			}
		})
	}
	d.t.Cleanup(func() { stop(); c.wg.Wait(); client.CloseIdleConnections() })
	return c
}

func (c *crowd) note(status int, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.statuses[status]++
	if status != http.StatusOK {
		c.t.Logf("%d %s", status, text)
		return
	}
	c.apps[text]++
	select {
	case c.answered <- struct{}{}:
	default:
	}
}

// await waits until each of the apps has answered some more requests, and a number of
// them all together.
func (c *crowd) await(apps ...*app) {
	c.t.Helper()
	c.mu.Lock()
	clear(c.apps)
	c.mu.Unlock()
	late := time.After(time.Minute)
	for {
		select {
		case <-c.answered:
		case <-late:
			c.t.Fatalf("of the apps only %v answer", c.apps)
		}
		c.mu.Lock()
		total, done := 0, true
		for _, n := range c.apps {
			total += n
		}
		for _, a := range apps {
			done = done && c.apps[a.addr] >= 5
		}
		c.mu.Unlock()
		if done && total >= 10*crowdSize {
			return
		}
	}
}

// expect fails the test if anything was answered other than by an app, but for so many
// with 502, and begins to count anew.
func (c *crowd) expect(when string, lost int) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for status, n := range c.statuses {
		if status != http.StatusOK && (status != http.StatusBadGateway || n > lost) {
			c.t.Errorf("%s: %d requests were answered with %d, want 502 at most, and for %d", when, n, status, lost)
		}
	}
	c.t.Logf("%s: %v", when, c.statuses)
	c.ok += c.statuses[http.StatusOK]
	c.lost += c.statuses[http.StatusBadGateway]
	clear(c.statuses)
}

// readiness returns what a process says at /readyz.
func readiness(t *testing.T, p *cluster.Process) string {
	_, body := kit.Fetch(t, "http://"+p.Admin+"/readyz")
	return body
}

// Apps and sidecars start, crash and end in any order while clients work. No request
// fails but those under way at an app that is ended without its sidecar having been
// drained, and none runs twice.
func TestAppsComeAndGo(t *testing.T) {
	d := startDemo(t)
	one, two := &app{addr: kit.FreeAddr(t)}, &app{addr: kit.FreeAddr(t)}
	two.start(t)
	second := d.add("w2", "--upstream", "http://"+two.addr)
	clients := startCrowd(d)
	clients.await(two)

	first := d.add("w1", "--upstream", "http://"+one.addr)
	if said := readiness(t, first); !strings.Contains(said, "the app does not answer") {
		t.Errorf("a sidecar before its app says %q", said)
	}
	clients.await(two)
	one.start(t)
	kit.Eventually(t, "the sidecar joins", func() bool { return readiness(t, first) == "ready\n" })
	clients.await(one, two)
	clients.expect("a sidecar before its app", 0)

	one.signal(t, syscall.SIGKILL)
	kit.Eventually(t, "the sidecar leaves the ring", func() bool { return strings.Contains(readiness(t, first), "the app does not answer") })
	clients.await(two)
	clients.expect("a crash", crowdSize)
	clients.await(two)
	one.start(t)
	kit.Eventually(t, "the sidecar joins again", func() bool { return readiness(t, first) == "ready\n" })
	clients.await(one, two)
	clients.expect("an app that comes back", 0)

	res, err := http.Post("http://"+first.Admin+"/drain", "", nil)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatal("drain: ", err, res)
	}
	res.Body.Close()
	one.signal(t, syscall.SIGTERM)
	stopCleanly(t, first)
	clients.await(two)
	clients.expect("a sidecar that is drained before its app ends", 0)

	one.start(t)
	first = d.add("w1", "--upstream", "http://"+one.addr)
	clients.await(one, two)
	clients.expect("a new sidecar", 0)
	one.signal(t, syscall.SIGTERM)
	stopCleanly(t, first)
	clients.await(two)
	clients.expect("an app and its sidecar end together", crowdSize)
	clients.await(two)
	clients.expect("afterwards", 0)

	one.start(t)
	first = d.add("w1", "--upstream", "http://"+one.addr)
	clients.await(one, two)
	two.signal(t, syscall.SIGKILL)
	kit.Eventually(t, "the other sidecar leaves the ring", func() bool { return strings.Contains(readiness(t, second), "the app does not answer") })
	clients.await(one)
	clients.expect("an app dies for good", crowdSize)
	clients.await(one)
	clients.expect("without it", 0)
	clients.stop()
	clients.wg.Wait()
	one.signal(t, syscall.SIGTERM)
	one.await()
	two.await()
	clients.expect("in the end", 0)
	if runs := int(one.runs.Load() + two.runs.Load()); runs > clients.ok+clients.lost {
		t.Errorf("the apps began %d times with %d requests", runs, clients.ok+clients.lost)
	}
}
