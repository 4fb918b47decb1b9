package router_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// abusedApp answers by path, for who asks.
type abusedApp struct {
	turn chan struct{} // a request for /turn takes one before it is answered
	mu   sync.Mutex
	who  []string // had their turn
}

const largeBody = 20 << 20

func (a *abusedApp) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/large":
		for range largeBody >> 16 {
			rw.Write(make([]byte, 1<<16))
		}
	case "/silent":
		<-r.Context().Done()
	case "/turn":
		a.mu.Lock()
		a.who = append(a.who, r.Header.Get("Who"))
		a.mu.Unlock()
		<-a.turn
	}
}

func (a *abusedApp) ran() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.who)
}

// abuse is a router, a sidecar and an app, and two clients at addresses of their own.
type abuse struct {
	*site.Front
	worker    *site.Worker
	app       *abusedApp
	bad, good *http.Client
}

func (a *abuse) request(ctx context.Context, path, who string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, "GET", a.URL+path, nil)
	r.RequestURI = ""
	r.Header.Set("X-Key", "k")
	r.Header.Set("Who", who)
	return r
}

// isAnswered fails the test unless the good client is answered.
func (a *abuse) isAnswered(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	begin := time.Now()
	if res, _ := kit.Do(t, a.good, a.request(ctx, "/", "good")); res.StatusCode != 200 {
		t.Errorf("status %d", res.StatusCode)
	}
	t.Logf("answered after %v", time.Since(begin))
}

// TestTrapAbuse: whatever one client does with a key, another one gets it in its turn.
func TestTrapAbuse(t *testing.T) {
	for _, proto := range []string{"HTTP/1.1", "HTTP/2"} {
		for name, test := range map[string]func(*testing.T, *abuse){
			"slow reader": slowReader, "silent app": silentApp, "flood": flood, "requests that are left": leftRequests,
		} {
			t.Run(proto+", "+name, func(t *testing.T) {
				app := &abusedApp{turn: make(chan struct{})}
				s, w := site.InFrontOf(t, site.Serve(t, app).URL, func(cfg *worker.Config) {
					if name == "silent app" {
						cfg.Timeout = time.Second
					}
				})
				bad := kit.Client(t, proto)
				bad.Transport.(*http.Transport).DialContext = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext
				test(t, &abuse{s, w, app, bad, kit.Client(t, proto)})
			})
		}
	}
}

func slowReader(t *testing.T, a *abuse) {
	res := kit.Must(a.bad.Do(a.request(t.Context(), "/large", "bad")))
	defer res.Body.Close()
	a.isAnswered(t)
	if n, err := io.Copy(io.Discard, res.Body); n != largeBody || err != nil {
		t.Errorf("the slow reader got %d bytes, want %d; %v", n, largeBody, err)
	}
}

func silentApp(t *testing.T, a *abuse) {
	got := make(chan int, 1)
	go func() {
		res, err := a.bad.Do(a.request(t.Context(), "/silent", "bad"))
		if err != nil {
			t.Error(err)
			got <- 0
			return
		}
		res.Body.Close()
		got <- res.StatusCode
	}()
	kit.Eventually(t, "it holds the key", func() bool {
		return a.worker.TryDo(t.Context(), "k", func(gateway.Execution) error { return nil }) != nil
	})
	a.isAnswered(t)
	if status := <-got; status != http.StatusGatewayTimeout {
		t.Errorf("the silent one's status is %d", status)
	}
}

// ask sends requests that wait for their turn, until ctx ends.
func (a *abuse) ask(ctx context.Context, t *testing.T, wg *sync.WaitGroup, c *http.Client, who string, n int) {
	before := a.worker.Queued("k")
	for range n {
		wg.Go(func() {
			if res, err := c.Do(a.request(ctx, "/turn", who)); err == nil {
				res.Body.Close()
			} else if ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
	kit.Eventually(t, fmt.Sprint(n, " requests wait"), func() bool {
		return a.worker.Queued("k")+len(a.app.ran()) >= min(before+n, 1) && a.worker.Queued("k") >= before+n-1
	})
}

func flood(t *testing.T, a *abuse) {
	var wg sync.WaitGroup
	a.ask(t.Context(), t, &wg, a.bad, "bad", 200)
	wg.Go(func() {
		if res, err := a.good.Do(a.request(t.Context(), "/turn", "good")); err != nil {
			t.Error(err)
		} else {
			res.Body.Close()
		}
	})
	kit.Eventually(t, "it waits", func() bool { return a.worker.Queued("k") == 200 })
	close(a.app.turn)
	wg.Wait()
	if at := slices.Index(a.app.ran(), "good"); at < 0 || at > 2 {
		t.Errorf("%d of the flood ran before another client's request", at)
	}
}

func leftRequests(t *testing.T, a *abuse) {
	var wg sync.WaitGroup
	ctx, leave := context.WithCancel(t.Context())
	a.ask(ctx, t, &wg, a.bad, "bad", 100)
	leave()
	wg.Wait()
	kit.Eventually(t, "nobody waits", func() bool { return a.worker.Queued("k") == 0 })
	close(a.app.turn)
	a.isAnswered(t)
	if ran := strings.Join(a.app.ran(), " "); ran != "bad" {
		t.Errorf("the app saw %s", ran)
	}
}
