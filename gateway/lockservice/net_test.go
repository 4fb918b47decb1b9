package lockservice_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/lockservice"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/netproxy"
	"github.com/keyway-go/keyway/internal/test/site"
)

// lockNet is a lock service over a network, beside a front for requests to an app.
type lockNet struct {
	t      *testing.T
	front  *site.Front
	worker *site.Worker
	proxy  *netproxy.Proxy // between clients and the lock service
	client *http.Client    // with a connection for each request
}

func newLockNet(t *testing.T, app http.Handler) *lockNet {
	kit.NoLeaks(t)
	n := &lockNet{t: t}
	n.front, n.worker = site.InFrontOf(t, site.Serve(t, app).URL)
	server := lockservice.New(n.front.Router, lockservice.Config{}).NewServer(site.NetServer())
	l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Close()
		<-done
	})
	n.proxy = kit.Must(netproxy.New(l.Addr().String()))
	t.Cleanup(func() { n.proxy.Close() })
	n.client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	return n
}

func (n *lockNet) ask(method, path, id string) (a lockReply, err error) {
	n.t.Helper()
	req := kit.Must(http.NewRequestWithContext(n.t.Context(), method, "http://"+n.proxy.Addr()+path, nil))
	if id != "" {
		req.Header.Set("Idempotency-Key", id)
	}
	res, err := n.client.Do(req)
	if err != nil {
		return a, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return a, err
	}
	return replyOf(n.t, res.StatusCode, res.Header, string(body)), nil
}

func (n *lockNet) must(code int, method, path, id string) lockReply {
	n.t.Helper()
	a, err := n.ask(method, path, id)
	if err != nil || a.code != code {
		n.t.Fatalf("%s %s: %d %s %v, want %d", method, path, a.code, a.body, err, code)
	}
	return a
}

// lose makes a request whose answer is lost.
func (n *lockNet) lose(method, path, id string) {
	n.t.Helper()
	n.proxy.CutNext(netproxy.ToClient)
	if a, err := n.ask(method, path, id); err == nil {
		n.t.Fatalf("%s %s: the answer that was to be lost is %d %s", method, path, a.code, a.body)
	}
}

// Who has lost the answer to a request repeats it, and it is the same lock.
func TestTrapLockServiceLostAnswers(t *testing.T) {
	n := newLockNet(t, http.NotFoundHandler())
	n.lose("POST", "/v1/locks/k", "id-1")
	lock := n.must(200, "POST", "/v1/locks/k", "id-1")
	if state := n.must(200, "GET", "/v1/locks/k", ""); state.Token != lock.Token {
		t.Errorf("%s holds the key, the client has %s", state.body, lock.body)
	}
	n.must(423, "POST", "/v1/locks/k", "id-2")
	n.lose("PUT", "/v1/locks/k", "id-1")
	if again := n.must(200, "PUT", "/v1/locks/k", "id-1"); again.Token != lock.Token {
		t.Errorf("renewed: %s, want token %d", again.body, lock.Token)
	}
	n.lose("DELETE", "/v1/locks/k", "id-1")
	n.must(204, "DELETE", "/v1/locks/k", "id-1")
	if state := n.must(200, "GET", "/v1/locks/k", ""); state.Held {
		t.Errorf("unlocked: %s", state.body)
	}
	n.lose("POST", "/v1/locks/k", "id-3") // and no answer ever comes
	n.must(204, "DELETE", "/v1/locks/k", "id-3")
	n.lose("POST", "/v1/locks?key=a&key=b", "id-4")
	if several := n.must(200, "POST", "/v1/locks?key=a&key=b", "id-4"); len(several.Tokens) != 2 {
		t.Errorf("several keys: %s", several.body)
	}
	n.must(204, "DELETE", "/v1/locks?key=a&key=b", "id-4")
}

// A request that comes several times at once is for one lock, which nobody loses by that.
func TestTrapLockServiceRepeatedRequests(t *testing.T) {
	n := newLockNet(t, http.NotFoundHandler())
	for round := range 20 {
		id := fmt.Sprint("id-", round)
		var all sync.WaitGroup
		replies := make([]lockReply, 4)
		for i := range replies {
			all.Go(func() { replies[i], _ = n.ask("POST", "/v1/locks/k?wait=5s", id) })
		}
		all.Wait()
		state := n.must(200, "GET", "/v1/locks/k", "")
		for i, a := range replies {
			if a.code == 200 && (a.Token != state.Token || !state.Held) {
				t.Errorf("round %d: request %d has read %s, and now it is %s", round, i, a.body, state.body)
			}
		}
		n.must(204, "DELETE", "/v1/locks/k", id)
	}
}

// A client that dies while it waits leaves no trace.
func TestTrapLockServiceClientDies(t *testing.T) {
	n := newLockNet(t, http.NotFoundHandler())
	err := n.worker.Do(t.Context(), "k", func(gateway.Execution) error {
		died := make(chan error, 1)
		go func() {
			_, err := n.ask("POST", "/v1/locks/k?wait=20s", "")
			died <- err
		}()
		kit.Eventually(t, "one waits", func() bool { return n.worker.Queued("k") == 1 })
		n.proxy.Cut()
		if err := <-died; err == nil {
			t.Error("its connection was cut, and it has an answer")
		}
		kit.Eventually(t, "nobody waits", func() bool { return n.worker.Queued("k") == 0 })
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	n.must(200, "POST", "/v1/locks/k", "")
}

// turns lets a test decide when those who hold a key in turn go on.
type turns struct {
	t       *testing.T
	entered chan string
	leave   chan bool
	over    chan struct{} // closed with the test
}

// hold says who holds the key, until the test lets it go.
func (x *turns) hold(who string) {
	select {
	case x.entered <- who:
		select {
		case <-x.leave:
		case <-x.over:
		}
	case <-x.over:
	}
}

// next waits for who holds the key next.
func (x *turns) next(want string) {
	x.t.Helper()
	select {
	case got := <-x.entered:
		if got != want {
			x.t.Errorf("a %s has the key, want a %s", got, want)
		}
	case <-time.After(time.Minute):
		x.t.Fatalf("no %s gets the key", want)
	}
}

// A lock keeps requests for its key out, and they it, in the order in which they came.
func TestTrapLocksAndRequestsExclude(t *testing.T) {
	var running atomic.Int64
	x := &turns{t: t, entered: make(chan string), leave: make(chan bool), over: make(chan struct{})}
	n := newLockNet(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if running.Add(1) > 1 {
			t.Error("two requests run at once")
		}
		x.hold("request")
		running.Add(-1)
	}))
	const key, encoded = "order-42", "order-%34%32"
	var all sync.WaitGroup
	defer all.Wait()
	defer close(x.over)
	request := func() {
		if res, body := site.Get(t, n.front, key); res.StatusCode != 200 {
			t.Errorf("request: %d %s", res.StatusCode, body)
		}
	}
	lock := func() {
		a, err := n.ask("POST", "/v1/locks/"+encoded+"?wait=20s", "")
		if a.code != 200 || running.Load() != 0 {
			t.Errorf("lock: %d %s %v, while %d requests run", a.code, a.body, err, running.Load())
			return
		}
		x.hold("lock")
		if a, err := n.ask("DELETE", "/v1/locks/"+key+"?lease="+a.Lease, ""); a.code != 204 {
			t.Errorf("unlock: %d %s %v", a.code, a.body, err)
		}
	}
	for i, come := range []func(){lock, request, lock, request} {
		all.Go(come)
		if i == 0 {
			x.next("lock")
		} else {
			kit.Eventually(t, fmt.Sprint(i, " wait"), func() bool { return n.worker.Queued(key) == i })
		}
	}
	if a := n.must(423, "POST", "/v1/locks/"+key, ""); a.Kind != "lock" || a.Waiting != 3 {
		t.Errorf("%s", a.body)
	}
	for _, want := range []string{"request", "lock", "request"} {
		x.leave <- true
		x.next(want)
	}
	if a := n.must(423, "POST", "/v1/locks/"+key, ""); a.Kind != "request" {
		t.Errorf("%s", a.body)
	}
	x.leave <- true
}
