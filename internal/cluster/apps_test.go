package cluster_test

import (
	"bufio"
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
	"syscall"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/wire/sock"
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
	dir, err := os.MkdirTemp("", "keyway-cluster-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	built = sync.OnceValues(func() (cluster.Programs, error) { return cluster.Build(context.Background(), dir) })
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// built returns the programs, built once for all tests.
var built func() (cluster.Programs, error)

func programs(t *testing.T) cluster.Programs {
	t.Helper()
	p, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// runApp is an app that works on each request for some milliseconds. SIGTERM ends it
// in order, SIGUSR1 at once. It prints the number of each request that it has read.
func runApp(addr string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	crash := make(chan os.Signal, 1)
	signal.Notify(crash, syscall.SIGUSR1)
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	s := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		time.Sleep(3 * time.Millisecond)
		io.WriteString(rw, addr)
	})}
	j := new(journal)
	ended := make(chan error, 1)
	go func() {
		select {
		case <-ctx.Done():
			ended <- s.Shutdown(context.Background())
		case <-crash:
			j.mu.Lock() // what is read is printed
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}()
	fmt.Println("listens")
	if err := s.Serve(journaled{l, j}); err != http.ErrServerClosed {
		return err
	}
	return <-ended
}

// journal is held while a request is read and its number printed.
type journal struct{ mu sync.RWMutex }

// journaled is a listener whose connections keep the journal.
type journaled struct {
	net.Listener
	journal *journal
}

func (l journaled) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &journaledConn{c, l.journal, sock.Raw(c)}, nil
}

type journaledConn struct {
	net.Conn
	journal *journal
	raw     syscall.RawConn
}

func (c *journaledConn) Read(p []byte) (int, error) {
	if err := c.raw.Read(func(fd uintptr) bool { return sock.Look(fd) != sock.Silent }); err != nil {
		return 0, err
	}
	c.journal.mu.RLock()
	defer c.journal.mu.RUnlock()
	n, err := c.Conn.Read(p)
	if _, number, ok := strings.Cut(string(p[:n]), "X-Number: "); ok {
		number, _, _ = strings.Cut(number, "\r\n")
		fmt.Println(number)
	}
	return n, err
}

// app is an app in a process of its own.
type app struct {
	addr   string
	cmd    *exec.Cmd
	ended  chan struct{}  // closed when all that it has printed is counted
	begins map[string]int // how often it has read which request; to be read once it has ended
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
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("the app does not listen: ", lines.Err())
	}
	if a.begins == nil {
		a.begins = make(map[string]int)
	}
	a.ended = make(chan struct{})
	go func(ended chan struct{}) {
		defer close(ended)
		for lines.Scan() {
			a.begins[lines.Text()]++
		}
	}(a.ended)
}

// await waits until an app that has been told to end has.
func (a *app) await() {
	if a.ended != nil {
		<-a.ended
		_ = a.cmd.Wait()
		a.ended = nil
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
	lost     []string       // requests without a body that were answered with 502
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
				number := fmt.Sprintf("%d-%d", i, n)
				req.Header.Set("X-Number", number)
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
				if res.StatusCode == http.StatusBadGateway && body == "" {
					c.lose(number)
				}
				time.Sleep(50 * time.Millisecond) // the processors are the programs'
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

func (c *crowd) lose(number string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = append(c.lost, number)
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
	clear(c.statuses)
}

// readiness returns what a process says at /readyz.
func readiness(t *testing.T, p *cluster.Process) string {
	_, body := kit.Fetch(t, "http://"+p.Admin+"/readyz")
	return body
}

// Apps and sidecars start, crash and end in any order while clients work. No request
// fails but those which an app has read that is ended without its sidecar having been
// drained, and those with a body that have come to it. None is read twice.
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

	one.signal(t, syscall.SIGUSR1)
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
	one.signal(t, syscall.SIGUSR1)
	stopCleanly(t, first)
	clients.await(two)
	clients.expect("an app crashes while its sidecar ends", crowdSize)
	clients.await(two)
	clients.expect("after that", 0)

	one.start(t)
	first = d.add("w1", "--upstream", "http://"+one.addr)
	clients.await(one, two)
	two.signal(t, syscall.SIGUSR1)
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
	for number, times := range two.begins {
		one.begins[number] += times
	}
	for number, times := range one.begins {
		if times > 1 {
			t.Errorf("request %s was read %d times", number, times)
		}
	}
	for _, number := range clients.lost {
		if one.begins[number] == 0 {
			t.Errorf("request %s was answered with 502, and no app has read it", number)
		}
	}
}
