package sidecar_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway/sidecar"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// switchedApp is an app in memory that takes connections while it is up. What it has
// taken goes on.
type switchedApp struct {
	down  atomic.Pointer[error] // what who connects gets; nil while it is up
	dials atomic.Int64
	hold  chan struct{} // requests for /hold are answered when it is closed
	held  chan struct{} // receives for each of them
}

func newSwitchedApp() *switchedApp {
	return &switchedApp{hold: make(chan struct{}), held: make(chan struct{}, 10)}
}

func (a *switchedApp) set(down error) {
	a.down.Store(&down)
	if down == nil {
		a.down.Store(nil)
	}
}

func (a *switchedApp) dial(context.Context) (net.Conn, error) {
	a.dials.Add(1)
	if down := a.down.Load(); down != nil {
		return nil, *down
	}
	near, far := net.Pipe()
	go func() {
		defer far.Close()
		r, err := http.ReadRequest(bufio.NewReader(far))
		if err != nil {
			return
		}
		if r.URL.Path == "/hold" {
			a.held <- struct{}{}
			<-a.hold
		}
		io.WriteString(far, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 6\r\n\r\nserved")
	}()
	return near, nil
}

var errNoListener = &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}

// The worker's place on the ring follows its app: the others have its partitions
// while the app is down, and requests that come nevertheless are told so.
func TestTrapRingFollowsTheApp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		app := newSwitchedApp()
		a := c.StartReady()
		h := kit.Must(sidecar.Over(a.Worker, app.dial))
		b := c.Start()
		kit.Eventually(t, "both serve", func() bool { return a.Serving() > 0 && b.Serving() > 0 && a.Serving()+b.Serving() == 16 })
		share := a.Serving()
		app.set(errNoListener)
		kit.Eventually(t, "it has left the ring", func() bool { return !a.IsActive() })
		if err := a.Ready(); !errors.Is(err, worker.ErrAppDown) || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("ready without an app: %v", err)
		}
		kit.Eventually(t, "the other one has all partitions", func() bool { return b.Serving() == 16 && a.Serving() == 0 })
		kit.Eventually(t, "it names the other one", func() bool {
			rec := site.Ask(t, h, "/", "k")
			return rec.Header().Get("Keyway-Refused") == "not-owner" && rec.Header().Get("Keyway-Owner") == b.Incarnation()
		})
		incarnation := a.Incarnation()
		app.set(nil)
		kit.Eventually(t, "it has its partitions back", func() bool { return a.Serving() == share && a.Ready() == nil })
		if a.Incarnation() != incarnation {
			t.Error("it has begun anew")
		}
	})
}

// A worker that is the only one keeps its partitions while its app is down, refuses
// requests without asking the app, and serves them as soon as that is back.
func TestOnlyWorkerWithoutItsApp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		app := newSwitchedApp()
		a := site.New(t, 16).StartReady()
		h := kit.Must(sidecar.Over(a.Worker, app.dial))
		for range 3 { // it may crash as it likes, if nobody else serves
			app.set(errNoListener)
			kit.Eventually(t, "it has left the ring", func() bool { return !a.IsActive() })
			dials := app.dials.Load()
			if rec := site.Ask(t, h, "/", "k"); rec.Header().Get("Keyway-Refused") != "unavailable" || a.Serving() != 16 {
				t.Errorf("%d %v %s; serves %d partitions", rec.Code, rec.Header(), rec.Body, a.Serving())
			}
			if app.dials.Load() != dials {
				t.Error("an app that is down is asked by requests")
			}
			app.set(nil)
			began := time.Now()
			kit.Eventually(t, "it is back", func() bool { return a.IsActive() && a.Ready() == nil })
			if took := time.Since(began); took > 200*time.Millisecond {
				t.Errorf("it is back after %v", took)
			}
			if rec := site.Ask(t, h, "/", "k"); rec.Body.String() != "served" {
				t.Errorf("%d %s", rec.Code, rec.Body)
			}
		}
	})
}

// A request that runs when its app stops to take connections holds its key, also
// for the worker that has its partition now.
func TestTrapDyingAppHoldsItsKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		dying, app := newSwitchedApp(), newSwitchedApp()
		a := c.StartReady()
		h := kit.Must(sidecar.Over(a.Worker, dying.dial))
		first := make(chan *httptest.ResponseRecorder, 1)
		go func() { first <- site.Ask(t, h, "/hold", "k") }()
		<-dying.held
		b := c.Start()
		next := kit.Must(sidecar.Over(b.Worker, app.dial))
		dying.set(errNoListener)
		kit.Eventually(t, "the other one has all partitions", func() bool { return b.Serving() == 16 })
		second := make(chan *httptest.ResponseRecorder, 1)
		go func() { second <- site.Ask(t, next, "/", "k") }()
		if rec := site.Ask(t, next, "/", "other"); rec.Body.String() != "served" {
			t.Errorf("another key: %d %s", rec.Code, rec.Body)
		}
		time.Sleep(5 * time.Second)
		select {
		case rec := <-second:
			t.Errorf("it runs beside the first: %d %s", rec.Code, rec.Body)
		default:
		}
		close(dying.hold)
		for _, answer := range []chan *httptest.ResponseRecorder{first, second} {
			if rec := <-answer; rec.Body.String() != "served" {
				t.Errorf("%d %s", rec.Code, rec.Body)
			}
		}
	})
}

// An app that crashes again and again has to answer for longer and longer until its
// worker joins the others.
func TestCrashLoopsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		app := newSwitchedApp()
		a := c.StartReady()
		kit.Must(sidecar.Over(a.Worker, app.dial))
		c.Start()
		crash := func() (joined time.Duration) {
			app.set(errNoListener)
			kit.Eventually(t, "it has left the ring", func() bool { return !a.IsActive() })
			app.set(nil)
			began := time.Now()
			for !a.IsActive() {
				time.Sleep(10 * time.Millisecond)
			}
			return time.Since(began)
		}
		time.Sleep(5 * time.Minute)
		for i, want := range []time.Duration{0, 1, 2, 4, 8, 16, 32, 60, 60} {
			want *= time.Second
			if got := crash(); got < want || got > want+200*time.Millisecond {
				t.Errorf("crash %d: it joins after %v, want %v", i+1, got, want)
			}
		}
		time.Sleep(5 * time.Minute)
		if got := crash(); got > 200*time.Millisecond {
			t.Errorf("it joins after %v though it had worked for long", got)
		}
	})
}

// One refused connection, or want of something on this side, takes no worker off
// the ring.
func TestOneFailureIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		app := newSwitchedApp()
		a := site.New(t, 16).StartReady()
		h := kit.Must(sidecar.Over(a.Worker, app.dial))
		time.Sleep(500 * time.Millisecond) // between two probes
		for range 100 {
			app.set(errNoListener)
			for range 20 { // together they are one failure
				if rec := site.Ask(t, h, "/", "k"); rec.Header().Get("Keyway-Refused") != "unavailable" {
					t.Errorf("%d %v", rec.Code, rec.Header())
				}
			}
			synctest.Wait()
			app.set(nil)
			if rec := site.Ask(t, h, "/", "k"); rec.Body.String() != "served" || !a.IsActive() {
				t.Fatalf("%d %s", rec.Code, rec.Body)
			}
			time.Sleep(time.Second)
		}
		for _, own := range []error{syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.EAGAIN} {
			app.set(&net.OpError{Op: "dial", Err: own})
			time.Sleep(time.Minute)
			if !a.IsActive() {
				t.Errorf("%v takes it off the ring", own)
			}
			app.set(nil)
		}
		app.set(errNoListener)
		began := time.Now()
		site.Ask(t, h, "/", "k")
		kit.Eventually(t, "it has left the ring", func() bool { return !a.IsActive() })
		if took := time.Since(began); took > 150*time.Millisecond {
			t.Errorf("it leaves the ring %v after a connection was refused", took)
		}
	})
}

// With Config.AwaitApp the worker is no place on the ring before its app answers.
func TestAwaitApp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		app := newSwitchedApp()
		app.set(errNoListener)
		a := site.New(t, 16).Start(func(cfg *worker.Config) { cfg.AwaitApp = true })
		time.Sleep(time.Minute)
		if a.IsActive() || !errors.Is(a.Ready(), worker.ErrAppDown) {
			t.Errorf("on the ring before there is an app: %v", a.Ready())
		}
		h := kit.Must(sidecar.Over(a.Worker, app.dial))
		if err := a.Await(t.Context()); !errors.Is(err, worker.ErrAppDown) || a.IsActive() {
			t.Errorf("Await: %v", err)
		}
		app.set(nil)
		time.Sleep(200 * time.Millisecond)
		if err := a.Await(t.Context()); err != nil || a.Ready() != nil {
			t.Errorf("with an app: %v, %v", err, a.Ready())
		}
		if rec := site.Ask(t, h, "/", "k"); rec.Body.String() != "served" {
			t.Errorf("%d %s", rec.Code, rec.Body)
		}
	})
}

// The app is asked for a path, over TCP and over a Unix socket.
func TestUpstreamHealth(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			var status atomic.Int64
			status.Store(200)
			app := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/up" {
					return
				}
				if r.Method != http.MethodGet || r.Host == "" {
					t.Errorf("%s of %q", r.Method, r.Host)
				}
				rw.Header().Set("Location", "/nowhere")
				rw.WriteHeader(int(status.Load()))
			}))
			at := ""
			if network == "unix" {
				app.Listener.Close()
				path := t.TempDir() + "/app.sock"
				app.Listener, at = kit.Must(net.Listen("unix", path)), "unix://"+path
			}
			app.Start()
			defer app.Close()
			if network == "tcp" {
				at = app.URL
			}
			a := site.New(t, 16).StartReady(func(cfg *worker.Config) { cfg.UpstreamHealth = "/up" })
			kit.Must(sidecar.New(a.Worker, kit.Must(url.Parse(at))))
			for _, s := range []int{503, 204, 404, 302, 500, 200} {
				status.Store(int64(s))
				kit.Eventually(t, http.StatusText(s), func() bool { return a.IsActive() == (s < 400) })
			}
		})
	}
	a := site.New(t, 16).StartReady(func(cfg *worker.Config) { cfg.UpstreamHealth = "up" })
	if _, err := sidecar.New(a.Worker, kit.Must(url.Parse("http://127.0.0.1:1"))); err == nil || !strings.Contains(err.Error(), "UpstreamHealth") {
		t.Errorf("a path without a slash: %v", err)
	}
}

// An app that takes connections and does not answer is down after two seconds.
func TestSilentAppIsDown(t *testing.T) {
	l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	a := site.New(t, 16).StartReady(func(cfg *worker.Config) { cfg.UpstreamHealth = "/up" })
	kit.Must(sidecar.New(a.Worker, kit.Must(url.Parse("http://"+l.Addr().String()))))
	kit.Eventually(t, "it has left the ring", func() bool { return !a.IsActive() })
}
