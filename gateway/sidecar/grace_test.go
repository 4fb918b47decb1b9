package sidecar_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/sidecar"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/wire/link"
)

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
		s.store.Set(true)
		s.store.awaitLease(t, 6900*time.Millisecond)
		ask(t, s, app, key)
		s.store.awaitLease(t, 8001*time.Millisecond)
		s.store.Set(false)
		go func() {
			time.Sleep(900 * time.Millisecond)
			if s.Incarnation() != before {
				t.Error("the worker has not got its session back")
			}
		}()
	}
}

// afterGivingUp lets a sidecar give the app's connection up, and returns when
// that was, what the app did of the key, the next request of which came at
// once, and the worker's log. With drain the worker is drained at once.
func afterGivingUp(t *testing.T, tt use, work time.Duration, drain, obeys bool) (at time.Time, visits []visit, logs string) {
	c := site.New(t, 16)
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
		if k := fmt.Sprint("k", i); a.Do(t.Context(), k, func(gateway.Execution) error { return nil }) == nil {
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

// What a dead sidecar owned is taken over when its app has had time to end, and at once if nothing was there.
func TestTrapSidecarRestartWaitsForTheApp(t *testing.T) {
	for _, grace := range []time.Duration{0, 1500 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			c := site.New(t, 16)
			dead := c.StartOwner()
			dead.Close()
			dead.Member.Vanish()
			start := time.Now()
			w := c.Start(func(cfg *worker.Config) {
				cfg.Previous, cfg.AwaitApp = map[string]time.Duration{dead.Incarnation(): grace}, true
			})
			kit.Must(sidecar.Over(w.Worker, newSwitchedApp().dial))
			for w.Serving() == 0 {
				time.Sleep(time.Millisecond)
			}
			if waited := time.Since(start); waited < grace || waited > grace+time.Second {
				t.Errorf("after a grace of %v it serves after %v", grace, waited)
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
	c.(interface{ CloseWrite() error }).CloseWrite()
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
		s := startSidecar(t, site.New(t, 16), app)
		s.AwaitServing(t, 16)
		come := make(chan struct{})
		body := io.NopCloser(lateBody{strings.NewReader("hello"), come})
		var wg sync.WaitGroup
		wg.Go(func() {
			res, err := s.links.Do(t.Context(), &link.Request{
				Method: "POST", Target: "/", Host: "x", Key: "k", ContentLength: 5,
				Open: func() io.ReadCloser { return body },
			})
			if err == nil {
				res.Body.Close()
			}
			if err == nil && res.Status == http.StatusOK {
				t.Error("the request is answered with 200")
			}
		})
		synctest.Wait()
		s.store.Set(true)
		time.Sleep(9 * time.Second) // more than 0.8 TTL
		close(come)
		wg.Wait()
		s.store.Set(false)
		app.mu.Lock()
		defer app.mu.Unlock()
		if len(app.visits) > 0 {
			t.Errorf("the app saw %v", app.visits)
		}
	})
}
