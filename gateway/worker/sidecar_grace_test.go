package worker_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/policy"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/workertest"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/internal/wire/netutil"
	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/handoff"
)

// memoryConn is one end of a connection in memory, of which either direction
// can end first.
type memoryConn struct {
	net.Conn          // to read from
	out      net.Conn // to write to
}

func memoryConns() (a, b net.Conn) {
	a1, b1 := net.Pipe()
	a2, b2 := net.Pipe()
	return memoryConn{a1, a2}, memoryConn{b2, b1}
}

func (c memoryConn) Write(b []byte) (int, error)        { return c.out.Write(b) }
func (c memoryConn) CloseWrite() error                  { return c.out.Close() }
func (c memoryConn) Close() error                       { return errors.Join(c.Conn.Close(), c.out.Close()) }
func (c memoryConn) SetWriteDeadline(t time.Time) error { return c.out.SetWriteDeadline(t) }
func (c memoryConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// memoryListener takes connections that dial makes.
type memoryListener struct{ *netutil.Listener }

func newMemoryListener() memoryListener {
	return memoryListener{netutil.NewListener(&net.UnixAddr{Name: "memory", Net: "unix"})}
}

func (l memoryListener) dial(ctx context.Context) (net.Conn, error) {
	near, far := memoryConns()
	if !l.Put(far, ctx.Done(), nil) {
		return nil, cmp.Or(ctx.Err(), net.ErrClosed)
	}
	return near, nil
}

// visit is the work that a stubbornApp does for one request.
type visit struct {
	key      string
	from, to time.Time
}

// stubbornApp takes one request per connection. It works on the first one until
// it is told to stop, whatever becomes of the connection, and on each other one
// for no time.
type stubbornApp struct {
	memoryListener
	answer  string        // to the first request, at once
	chatter time.Duration // how often it writes on then; 0 for never
	chat    string        // what it writes; default "x"
	entered chan struct{} // receives when work begins
	stop    chan struct{} // ends the work on the first request; closed by end
	obeys   bool          // ends that work itself when its input ends
	once    sync.Once

	mu     sync.Mutex
	visits []visit
}

func startStubbornApp(t *testing.T) *stubbornApp {
	a := &stubbornApp{memoryListener: newMemoryListener(), entered: make(chan struct{}, 10), stop: make(chan struct{})}
	t.Cleanup(func() { a.Close() })
	go func() {
		for {
			c, err := a.Accept()
			if err != nil {
				return
			}
			go a.serve(c)
		}
	}()
	return a
}

func (a *stubbornApp) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	r, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	go func() {
		io.Copy(io.Discard, in) // as the system would keep it
		if a.obeys {
			a.end()
		}
	}()
	a.mu.Lock()
	first := len(a.visits) == 0
	a.visits = append(a.visits, visit{key: r.Header.Get(gateway.HeaderKey), from: time.Now()})
	i := len(a.visits) - 1
	a.mu.Unlock()
	a.entered <- struct{}{}
	if first {
		a.insist(c)
	}
	a.mu.Lock()
	a.visits[i].to = time.Now()
	a.mu.Unlock()
	if !first {
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	}
}

func (a *stubbornApp) end() { a.once.Do(func() { close(a.stop) }) }

// insist answers, and works on.
func (a *stubbornApp) insist(c net.Conn) {
	io.WriteString(c, a.answer)
	every := time.Hour
	if a.chatter > 0 {
		every = a.chatter
	}
	for {
		select {
		case <-a.stop:
			return
		case <-time.After(every):
			io.WriteString(c, cmp.Or(a.chat, "x"))
		}
	}
}

// goneStore is a cutStore whose worker's session can be gone.
type goneStore struct {
	cutStore
	gone    bool
	renewed time.Time // when the last renewal that worked was sent
}

func (s *goneStore) Renew(ctx context.Context, generation, incarnation string, ttl time.Duration) error {
	s.mu.Lock()
	gone := s.gone
	s.gone = false
	s.mu.Unlock()
	if gone {
		return fmt.Errorf("%w: as the test has it", handoff.ErrSessionGone)
	}
	sent := time.Now()
	err := s.cutStore.Renew(ctx, generation, incarnation, ttl)
	if err == nil {
		s.mu.Lock()
		s.renewed = sent
		s.mu.Unlock()
	}
	return err
}

// awaitRenewal waits for a renewal, and then for d after it was sent.
func (s *goneStore) awaitRenewal(d time.Duration) {
	begin := time.Now()
	for {
		s.mu.Lock()
		at := s.renewed
		s.mu.Unlock()
		if at.After(begin) {
			time.Sleep(time.Until(at.Add(d)))
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// sidecarSite is a worker with a sidecar of an app, all in memory.
type sidecarSite struct {
	*workertest.Worker
	store *goneStore
	front memoryListener
	links *link.Client
	logs  *kit.Buffer
}

func startSidecar(t *testing.T, c *workertest.Cluster, app *stubbornApp, change ...func(*worker.Config)) *sidecarSite {
	s := &sidecarSite{store: &goneStore{cutStore: cutStore{Store: c.Store}}, front: newMemoryListener(), logs: new(kit.Buffer)}
	s.Worker = c.Start(append(change, func(cfg *worker.Config) {
		cfg.Direct, cfg.Timeout = true, cmp.Or(cfg.Timeout, time.Hour)
		cfg.Store, cfg.Logger = s.store, slog.New(slog.NewTextHandler(s.logs, nil))
	})...)
	server := s.NewServer(s.SidecarOver(app.dial))
	go server.Serve(s.front)
	s.links = &link.Client{Addr: "memory", Dial: s.front.dial, Config: link.Config{Cluster: ring.DefaultCluster, Digest: ring.Settings{Ring: c.Ring}.Digest()}}
	t.Cleanup(func() {
		s.links.Close()
		s.Worker.Close()
		server.Close()
		app.Close()
		time.Sleep(time.Minute) // of the bubble: whatever is left ends
	})
	return s
}

// raw sends a request as a member does over HTTP, and returns the connection.
func (s *sidecarSite) raw(t *testing.T, request string) net.Conn {
	c := kit.Must(s.links.DialPlain(t.Context()))
	if _, err := io.WriteString(c, request); err != nil {
		t.Error(err)
	}
	return c
}

// until asks for key until the app has answered, for two minutes.
func (s *sidecarSite) until(t *testing.T, key string) {
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		res, err := s.links.Do(t.Context(), &link.Request{Method: "GET", Target: "/", Host: "x", Key: key})
		if err == nil {
			_, err = io.Copy(io.Discard, res.Body)
			res.Body.Close()
			if res.Status == http.StatusOK {
				return
			}
		}
		if time.Since(begin) > 2*time.Minute {
			t.Errorf("the next request is not answered: %v", err)
			return
		}
	}
}

// brokenOff is a request's body that fails after its beginning.
type brokenOff struct {
	begun bool
	fail  <-chan struct{}
}

func (b *brokenOff) Read(p []byte) (int, error) {
	if !b.begun {
		b.begun = true
		return copy(p, "hello"), nil
	}
	<-b.fail
	return 0, errors.New("the client broke off")
}

// upgrade asks for a tunnel that holds its key, by a route that serializes.
var upgrade = "GET / HTTP/1.1\r\nHost: x\r\n" + gateway.HeaderKey + ": %s\r\n" +
	hop.HeaderPolicy + ": " + policy.Text((&policy.Policy{Mode: policy.Serialize}).Append(nil)) + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"

// use is a way to use the app. It sends a request, waits for the app to begin,
// and returns when that has happened which the use is about.
type use struct {
	answer  string        // of the app, at once
	chatter time.Duration // how often it goes on to write; 0 for never
	run     func(t *testing.T, s *sidecarSite, app *stubbornApp, key string)
}

// givenUp are the ways in which a sidecar comes to give up the app's connection
// before the answer is complete.
var givenUp = map[string]use{
	"upload over the link": {run: func(t *testing.T, s *sidecarSite, app *stubbornApp, key string) {
		fail := make(chan struct{})
		go func() {
			<-app.entered
			close(fail)
		}()
		_, err := s.links.Do(t.Context(), &link.Request{Method: "POST", Target: "/", Host: "x", Key: key, Body: &brokenOff{fail: fail}, ContentLength: -1})
		if err == nil {
			t.Error("answered")
		}
	}},
	"upload over the link, left": {run: func(t *testing.T, s *sidecarSite, app *stubbornApp, key string) {
		fail := make(chan struct{})
		defer close(fail)
		ctx, leave := context.WithCancel(t.Context())
		go func() {
			<-app.entered
			leave()
		}()
		_, err := s.links.Do(ctx, &link.Request{Method: "POST", Target: "/", Host: "x", Key: key, Body: &brokenOff{fail: fail}, ContentLength: -1})
		if err == nil {
			t.Error("answered")
		}
	}},
	"upgraded connection": {
		answer:  "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		chatter: 10 * time.Millisecond,
		run: func(t *testing.T, s *sidecarSite, app *stubbornApp, key string) {
			c := s.raw(t, fmt.Sprintf(upgrade, key))
			<-app.entered
			if _, err := io.ReadFull(c, make([]byte, 100)); err != nil {
				t.Error(err)
			}
			c.Close()
		},
	},
	"large answer":                {answer: "HTTP/1.1 200 OK\r\n" + strings.Repeat("A: "+strings.Repeat("x", 1<<10)+"\r\n", 1<<11), run: overLink},
	"large answer, plain HTTP":    {answer: "HTTP/1.1 200 OK\r\n" + strings.Repeat("A: "+strings.Repeat("x", 1<<10)+"\r\n", 1<<11), run: overHTTP},
	"no answer":                   {answer: "hello\r\n\r\n", run: overLink},
	"no answer, plain HTTP":       {answer: "hello\r\n\r\n", run: overHTTP},
	"malformed body":              {answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\nz\r\n", run: overLink},
	"malformed body, plain HTTP":  {answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\nz\r\n", run: overHTTP},
	"session gone":                {run: gone(overLink)},
	"session gone, plain HTTP":    {run: gone(overHTTP)},
	"session gone in the answer":  {answer: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe", run: gone(overLink)},
	"session gone in plain one":   {answer: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe", run: gone(overHTTP)},
	"cancelled":                   {run: cancelled(overLink)},
	"cancelled, plain HTTP":       {run: cancelled(overHTTP)},
	"session gone, upgraded one":  {answer: "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", run: gone(overUpgrade)},
	"cancelled, with half a body": {run: cancelled(withHalfABody)},
}

func overLink(t *testing.T, s *sidecarSite, app *stubbornApp, key string) {
	go func() {
		res, err := s.links.Do(t.Context(), &link.Request{Method: "GET", Target: "/", Host: "x", Key: key})
		if err == nil {
			io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
	}()
	<-app.entered
}

func overHTTP(t *testing.T, s *sidecarSite, app *stubbornApp, key string) {
	c := s.raw(t, "GET / HTTP/1.1\r\nHost: x\r\n"+gateway.HeaderKey+": "+key+"\r\n\r\n")
	go func() {
		defer c.Close()
		io.Copy(io.Discard, c)
	}()
	<-app.entered
}

func overUpgrade(t *testing.T, s *sidecarSite, app *stubbornApp, key string) {
	c := s.raw(t, fmt.Sprintf(upgrade, key))
	go func() {
		defer c.Close()
		io.Copy(io.Discard, c)
	}()
	<-app.entered
}

func withHalfABody(t *testing.T, s *sidecarSite, app *stubbornApp, key string) {
	fail := make(chan struct{})
	go func() {
		res, err := s.links.Do(t.Context(), &link.Request{Method: "POST", Target: "/", Host: "x", Key: key, Body: &brokenOff{fail: fail}, ContentLength: -1})
		if err == nil {
			res.Body.Close()
		}
	}()
	time.AfterFunc(10*time.Second, func() { close(fail) })
	<-app.entered
}

type asks = func(*testing.T, *sidecarSite, *stubbornApp, string)

// gone lets the store say that the worker's session is gone.
func gone(ask asks) asks {
	return func(t *testing.T, s *sidecarSite, app *stubbornApp, key string) {
		s.store.awaitRenewal(1900 * time.Millisecond)
		s.store.mu.Lock()
		s.store.gone = true
		s.store.mu.Unlock()
		ask(t, s, app, key)
		for before := s.Incarnation(); s.Incarnation() == before; {
			time.Sleep(time.Millisecond)
		}
	}
}

// cancelled cuts the worker off from the store until it has cancelled what
// runs, and no longer: it goes on under the same session.
func cancelled(ask asks) asks {
	return func(t *testing.T, s *sidecarSite, app *stubbornApp, key string) {
		before := s.Incarnation()
		s.store.awaitRenewal(time.Millisecond)
		s.store.set(true)
		s.store.awaitLease(t, 6900*time.Millisecond)
		ask(t, s, app, key)
		s.store.awaitLease(t, 8001*time.Millisecond)
		s.store.set(false)
		go func() {
			time.Sleep(900 * time.Millisecond)
			if s.Incarnation() != before {
				t.Error("the worker has not got its session back")
			}
		}()
	}
}

// awaitLease waits until d after the last renewal was sent.
func (s *goneStore) awaitLease(t *testing.T, d time.Duration) {
	s.mu.Lock()
	at := s.renewed
	s.mu.Unlock()
	time.Sleep(time.Until(at.Add(d)))
}

// afterGivingUp lets a sidecar give the app's connection up, and returns when
// that was, what the app did of the key, the next request of which came at
// once, and the worker's log. With drain the worker is drained at once.
func afterGivingUp(t *testing.T, tt use, work time.Duration, drain, obeys bool) (at time.Time, visits []visit, logs string) {
	c := workertest.New(t, 16)
	app := startStubbornApp(t)
	app.answer, app.chatter, app.obeys = tt.answer, tt.chatter, obeys
	a := startSidecar(t, c, app)
	a.AwaitServing(t, 16)
	next := a
	if drain {
		next = startSidecar(t, c, app)
		for a.Serving() > 8 || next.Serving() < 8 {
			time.Sleep(time.Millisecond)
		}
	}
	key := ""
	for i := 0; key == ""; i++ {
		if k := fmt.Sprint("k", i); a.Do(t.Context(), k, ok) == nil {
			key = k
		}
	}
	tt.run(t, a, app, key)
	at = time.Now()
	var wg sync.WaitGroup
	if drain {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := a.Drain(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Go(func() { next.until(t, key) })
	time.AfterFunc(work, app.end)
	wg.Wait()
	time.Sleep(work)
	app.mu.Lock()
	defer app.mu.Unlock()
	if len(app.visits) != 2 {
		t.Fatalf("the app saw %d requests", len(app.visits))
	}
	for _, v := range app.visits {
		if v.key != key {
			t.Fatalf("the app saw a request for %q", v.key)
		}
	}
	return at, app.visits, a.logs.String()
}

// When the sidecar gives up the app's connection before the answer is complete,
// the key stays held until the app has closed it, for the next request at this
// worker and for one at another that takes the key over.
func TestTrapSidecarHoldsKeyUntilAppCloses(t *testing.T) {
	for name := range givenUp {
		for _, drain := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", drain ", drain), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					_, visits, logs := afterGivingUp(t, givenUp[name], time.Second, drain, false)
					first, second := visits[0], visits[1]
					if second.from.Before(first.to) {
						t.Errorf("the next request reached the app %v before the app was done with the one given up", first.to.Sub(second.from))
					}
					if late := second.from.Sub(first.to); late > 15*time.Second {
						t.Errorf("the next request reached the app %v after the app was done", late)
					}
					if strings.Contains(logs, "level=ERROR") {
						t.Errorf("an error is logged: %s", logs)
					}
				})
			})
		}
	}
}

// An app that does not end is waited for as long as the cancelled may run on,
// and what that means is logged as an error.
func TestTrapSidecarHoldsKeyForTheGrace(t *testing.T) {
	const grace = 1500 * time.Millisecond // between 0.8 and 0.95 of 10 s
	for name := range givenUp {
		for _, drain := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", drain ", drain), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					at, visits, logs := afterGivingUp(t, givenUp[name], 30*time.Second, drain, false)
					if held := visits[1].from.Sub(at); held < grace-10*time.Millisecond || held > 20*time.Second {
						t.Errorf("the next request reached the app %v after the connection was given up, want %v", held, grace)
					}
					if !strings.Contains(logs, "level=ERROR") || !strings.Contains(logs, "app=http://app") || !strings.Contains(logs, "partition=") {
						t.Errorf("no error names the app and the partition: %s", logs)
					}
				})
			})
		}
	}
}

// The app learns that its connection was given up by the end of its input.
func TestSidecarHalfClosesWhatItGivesUp(t *testing.T) {
	for name := range givenUp {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				at, visits, logs := afterGivingUp(t, givenUp[name], 30*time.Second, false, true)
				if end := visits[0].to.Sub(at); end > 20*time.Millisecond {
					t.Errorf("the app learnt of the end after %v", end)
				}
				if strings.Contains(logs, "level=ERROR") {
					t.Errorf("an error is logged: %s", logs)
				}
			})
		})
	}
}

// What a dead sidecar owned is taken over when its app has had time to end.
func TestTrapSidecarRestartWaitsForTheApp(t *testing.T) {
	for _, app := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := workertest.New(t, 16)
			dead := c.Start()
			dead.AwaitServing(t, 16)
			dead.Close()
			if err := dead.Member.Vanish(); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			w := c.Start(func(cfg *worker.Config) {
				cfg.Previous, cfg.PreviousApp = []string{dead.Incarnation()}, app
			})
			for w.Serving() == 0 {
				time.Sleep(time.Millisecond)
			}
			if waited := time.Since(start); waited >= 1500*time.Millisecond != app || waited > 2500*time.Millisecond {
				t.Errorf("with an app %v: it serves after %v", app, waited)
			}
		})
	}
}

const (
	endless    = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n"
	toUpgraded = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
)

// left are uses in which the client leaves and the app does not end.
var left = map[string]use{
	"endless answer":          {endless, time.Second, leaveLink},
	"endless one, plain HTTP": {endless, time.Second, leaveHTTP},
	"no answer":               {"", 0, leaveLink},
	"no answer, plain HTTP":   {"", 0, leaveHTTP},
	"silent upgraded one":     {toUpgraded, 0, leaveUpgraded},
	"half closed by clients":  {toUpgraded, 0, halfCloseUpgraded},
}

func leaveLink(t *testing.T, s *sidecarSite, app *stubbornApp, key string) {
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		res, err := s.links.Do(ctx, &link.Request{Method: "GET", Target: "/", Host: "x", Key: key})
		if err == nil {
			io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
	}()
	<-app.entered
	time.Sleep(5 * time.Second)
	leave()
}

func leaveHTTP(t *testing.T, s *sidecarSite, app *stubbornApp, key string) {
	c := s.raw(t, "GET / HTTP/1.1\r\nHost: x\r\n"+gateway.HeaderKey+": "+key+"\r\n\r\n")
	go io.Copy(io.Discard, c)
	<-app.entered
	time.Sleep(5 * time.Second)
	c.Close()
}

func leaveUpgraded(t *testing.T, s *sidecarSite, app *stubbornApp, key string) {
	c := s.raw(t, fmt.Sprintf(upgrade, key))
	go io.Copy(io.Discard, c)
	<-app.entered
	time.Sleep(5 * time.Second)
	c.Close()
}

func halfCloseUpgraded(t *testing.T, s *sidecarSite, app *stubbornApp, key string) {
	c := s.raw(t, fmt.Sprintf(upgrade, key))
	go func() {
		defer c.Close()
		io.Copy(io.Discard, c)
	}()
	<-app.entered
	time.Sleep(5 * time.Second)
	c.(memoryConn).CloseWrite()
}

// A client that goes away takes neither the key nor its connection from the app
// that works for it.
func TestTrapSidecarHoldsKeyWhenClientLeaves(t *testing.T) {
	for _, name := range []string{"no answer", "no answer, plain HTTP", "endless answer", "endless one, plain HTTP"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				at, visits, _ := afterGivingUp(t, left[name], 30*time.Second, false, true)
				if ended := visits[0].to.Sub(at); ended < 30*time.Second {
					t.Errorf("the app lost its request %v after the client had left", ended)
				}
				if early := visits[0].to.Sub(visits[1].from); early > 0 {
					t.Errorf("the next request reached the app %v before the app was done", early)
				}
			})
		})
	}
}

// What a client has left is given up after AbandonedTimeout, and not before.
func TestTrapAbandonedRequestsAreGivenUp(t *testing.T) {
	const grace = 1500 * time.Millisecond
	for name, tt := range left {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				at, visits, logs := afterGivingUp(t, tt, 10*time.Minute, false, false)
				if held := visits[1].from.Sub(at); held < time.Minute+grace || held > time.Minute*12/10+2*grace {
					t.Errorf("the next request reached the app %v after the client had left", held)
				}
				if !strings.Contains(logs, "level=ERROR") {
					t.Errorf("no error is logged: %s", logs)
				}
			})
			synctest.Test(t, func(t *testing.T) {
				_, visits, logs := afterGivingUp(t, tt, 59*time.Second, false, false)
				if visits[1].from.Before(visits[0].to) || visits[1].from.Sub(visits[0].to) > time.Second {
					t.Errorf("the next request reached the app %v after the first was done", visits[1].from.Sub(visits[0].to))
				}
				if strings.Contains(logs, "level=ERROR") {
					t.Errorf("an error is logged: %s", logs)
				}
			})
		})
	}
}

// lateBody is a request's body that comes when it is told to.
type lateBody struct {
	io.Reader
	come <-chan struct{}
}

func (b lateBody) Read(p []byte) (int, error) {
	<-b.come
	return b.Reader.Read(p)
}

// A request whose ownership is lost while its body comes does not reach the app.
func TestTrapSidecarSendsNothingOfALostOwnership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		app := startStubbornApp(t)
		s := startSidecar(t, workertest.New(t, 16), app)
		s.AwaitServing(t, 16)
		come := make(chan struct{})
		body := io.NopCloser(lateBody{strings.NewReader("hello"), come})
		var wg sync.WaitGroup
		wg.Go(func() {
			res, err := s.links.Do(t.Context(), &link.Request{
				Method: "POST", Target: "/", Host: "x", Key: "k", ContentLength: 5,
				Open: func() (io.ReadCloser, error) { return body, nil },
			})
			if err == nil {
				res.Body.Close()
			}
			if err == nil && res.Status == http.StatusOK {
				t.Error("the request is answered with 200")
			}
		})
		synctest.Wait()
		s.store.set(true)
		time.Sleep(9 * time.Second) // more than 0.8 TTL
		close(come)
		wg.Wait()
		s.store.set(false)
		app.mu.Lock()
		defer app.mu.Unlock()
		if len(app.visits) > 0 {
			t.Errorf("the app saw %v", app.visits)
		}
	})
}
