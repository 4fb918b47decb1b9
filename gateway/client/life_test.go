package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/client"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// An answer can be closed while it is read, and before its end: then the handler's
// context ends. One that nobody reads does not come whole, nor hold the handler once
// the context has ended.
func TestClientLeavesAnAnswer(t *testing.T) {
	ended := make(chan error, 1)
	app := func(w http.ResponseWriter, r *http.Request) {
		defer func() { ended <- context.Cause(r.Context()) }()
		io.WriteString(w, "begun")
		w.(http.Flusher).Flush()
		if r.URL.Path == "/wait" {
			<-r.Context().Done()
			return
		}
		for piece := make([]byte, 32<<10); r.Context().Err() == nil; {
			if _, err := w.Write(piece); err != nil {
				<-r.Context().Done()
			}
		}
	}
	eachClientWay(t, app, func(t *testing.T, c *client.Client) {
		for _, path := range []string{"/wait", "/endless"} {
			for _, how := range []string{"close", "close during a read", "cancel", "cancel during a read"} {
				ctx, cancel := context.WithCancelCause(t.Context())
				res, err := c.RoundTrip(keyed(t, "GET", path, nil).WithContext(ctx))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(res.Body, make([]byte, 5)); err != nil {
					t.Fatal(err)
				}
				during := strings.HasSuffix(how, "read")
				read := make(chan error, 1)
				if during {
					go func() {
						_, err := io.Copy(io.Discard, res.Body)
						read <- err
					}()
				}
				left := errors.New("left")
				if strings.HasPrefix(how, "close") {
					res.Body.Close()
				} else {
					cancel(left)
				}
				if during {
					if err := <-read; err == nil || !errors.Is(err, gateway.ErrMayHaveRun) && !errors.Is(err, http.ErrBodyReadAfterClose) {
						t.Errorf("%s, %s: %v", path, how, err)
					}
				}
				if err := <-ended; err == nil {
					t.Errorf("%s, %s: the handler's context goes on", path, how)
				}
				res.Body.Close()
				if n, err := res.Body.Read(make([]byte, 1)); n != 0 || err == nil {
					t.Errorf("%s, %s: after Close: %d %v", path, how, n, err)
				}
				cancel(nil)
			}
		}
	})
}

// A body of which nothing comes does not hold up a call whose context has ended.
func TestClientOfABodyThatDoesNotCome(t *testing.T) {
	ways := clientWays(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
	for way, c := range ways {
		for _, length := range []int64{4, 100 << 10, -1} {
			ctx, cancel := context.WithCancelCause(t.Context())
			left := errors.New("left")
			body, w := io.Pipe()
			r := keyed(t, "POST", "/", body).WithContext(ctx)
			r.ContentLength = length
			go func() {
				io.WriteString(w, "x") // once somebody reads
				cancel(left)
			}()
			if _, err := c.RoundTrip(r); !errors.Is(err, left) || errors.Is(err, gateway.ErrMayHaveRun) {
				t.Errorf("%s: %d bytes: %v", way, length, err)
			}
			kit.Eventually(t, "the body is closed", func() bool {
				_, err := io.WriteString(w, "x")
				return err != nil
			})
		}
	}
}

// newDeadline returns a context whose deadline passes when pass is called.
func newDeadline(t *testing.T) (ctx context.Context, pass func()) {
	passed := make(chan struct{})
	return deadline{t.Context(), passed}, sync.OnceFunc(func() { close(passed) })
}

type deadline struct {
	context.Context
	passed chan struct{}
}

func (d deadline) Done() <-chan struct{} { return d.passed }

func (d deadline) Err() error {
	select {
	case <-d.passed:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// A deadline that has passed is a timeout for net/http.
func TestClientTimeout(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	eachClientWay(t, func(http.ResponseWriter, *http.Request) {
		begun <- struct{}{}
		<-release
	}, func(t *testing.T, c *client.Client) {
		ctx, pass := newDeadline(t)
		go func() {
			<-begun
			pass()
		}()
		_, err := (&http.Client{Transport: c}).Do(keyed(t, "GET", "/", nil).WithContext(ctx))
		if e, ok := errors.AsType[*url.Error](err); !ok || !e.Timeout() || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, gateway.ErrMayHaveRun) {
			t.Errorf("%v", err)
		}
		if !strings.Contains(fmt.Sprint(err), `key "k /"`) {
			t.Errorf("%v: which key?", err)
		}
	})
}

// An execution that calls for a key along its own chain gets 508 rather than wait
// for itself, wherever the keys are.
func TestClientNestedCalls(t *testing.T) {
	c := site.New(t, 16)
	var clients [2]*client.Client
	var workers [2]*site.Worker
	keys := [2]string{}
	call := func(ctx context.Context, from int, key, path string) (int, string) {
		r, _ := http.NewRequestWithContext(ctx, "GET", path, nil)
		r.Header.Set(gateway.HeaderKey, url.PathEscape(key))
		res, err := clients[from].RoundTrip(r)
		if err != nil {
			return 0, err.Error()
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(body)
	}
	for i := range workers {
		w := c.Start()
		workers[i] = w
		h := w.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			var next, rest string
			if next, rest, _ = strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/"); next == "" {
				io.WriteString(rw, "end")
				return
			}
			status, text := call(r.Context(), i, next, "/"+rest)
			fmt.Fprintf(rw, "%d ", status)
			io.WriteString(rw, text)
		}))
		w.Listen(t, h)
		clients[i] = site.NewClient(t, client.Config{Members: w.Member, Local: w.Local(h)})
	}
	kit.Eventually(t, "both serve", func() bool {
		return workers[0].Serving()+workers[1].Serving() == 16 && workers[0].Serving() > 0 && workers[1].Serving() > 0
	})
	for n := 0; keys[0] == "" || keys[1] == ""; n++ {
		key := fmt.Sprint("key", n)
		if owner, _ := clients[0].Owner(key); owner.Name == workers[0].Member.Self().Name {
			keys[0] = key
		} else {
			keys[1] = key
		}
	}
	a, b := keys[0], keys[1]
	for path, want := range map[string]string{
		a:                                   "end",
		a + "/" + b:                         "200 end",
		a + "/" + a:                         "508 the request would wait",
		b + "/" + b:                         "508 the request would wait",
		a + "/" + b + "/" + a:               "200 508 the request would wait",
		b + "/" + a + "/" + b:               "200 508 the request would wait",
		a + "/other1/other2":                "200 200 end",
		a + "/other1/other2/" + b + "/" + a: "200 200 200 508 the request would wait",
	} {
		key, rest, _ := strings.Cut(path, "/")
		for from := range clients {
			if _, text := call(t.Context(), from, key, "/"+rest); !strings.HasPrefix(text, want) {
				t.Errorf("%s: %q, want %q", path, text, want)
			}
		}
	}
	err := workers[0].Do(t.Context(), a, func(x gateway.Execution) error {
		if status, text := call(x.Context(), 0, a, "/"); status != 508 {
			t.Errorf("from Do: %d %q", status, text)
		}
		if status, text := call(x.Context(), 0, b, "/"+a); status != 200 || !strings.HasPrefix(text, "508") {
			t.Errorf("from Do, by way of another worker: %d %q", status, text)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Clients of all kinds, with workers that come and go: every request is answered,
// and no two of a key run at once.
func TestClientsWhileWorkersMove(t *testing.T) {
	kit.NoLeaks(t)
	c := site.New(t, 16)
	var running [8]atomic.Int64
	app := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		n := &running[r.Header.Get("Keyway-Key")[0]-'0']
		if n.Add(1) != 1 {
			t.Error("two at once")
		}
		body, _ := io.ReadAll(r.Body)
		n.Add(-1)
		rw.Write(body)
	})
	start := func() (*site.Worker, http.Handler) {
		w := c.Start()
		h := w.Handler(app)
		w.Listen(t, h)
		return w, h
	}
	first, h := start()
	outside := c.Join("client")
	clients := []*client.Client{
		site.NewClient(t, client.Config{Members: first.Member, Local: first.Local(h)}),
		site.NewClient(t, client.Config{Members: outside}),
	}
	var done atomic.Bool
	var answered atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := 0; !done.Load(); n++ {
				text := fmt.Sprint(i, " ", n)
				r, _ := http.NewRequestWithContext(t.Context(), "POST", "/", strings.NewReader(text))
				r.Header.Set(gateway.HeaderKey, fmt.Sprint(n%8))
				res, err := clients[i%2].RoundTrip(r)
				if err != nil {
					t.Error(err)
					return
				}
				if body, err := io.ReadAll(res.Body); res.StatusCode != 200 || string(body) != text {
					t.Errorf("%d %q %v", res.StatusCode, body, err)
				}
				res.Body.Close()
				answered.Add(1)
			}
		})
	}
	for range 2 {
		w, _ := start()
		kit.Eventually(t, "it serves a part", func() bool { return w.Serving() > 0 })
		before := answered.Load()
		kit.Eventually(t, "requests go on", func() bool { return answered.Load() > before+200 })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := w.Drain(ctx); err != nil {
			t.Error(err)
		}
		cancel()
		w.Close()
		w.Member.Vanish()
	}
	done.Store(true)
	wg.Wait()
}

// An answer that is longer or shorter than it says is no whole one, and one that has
// no body has none.
func TestClientOfARogueWorker(t *testing.T) {
	const body, honest = "12345-", "\xc8\x01\x07" // status 200 and length 6, as the link has them
	for answered, want := range map[string]string{
		honest:         `200 "12345-" <nil>`,
		"\xc8\x01\x06": `200 "12345" client: key "k /": gateway: the call may have run: the answer does not have its declared length`,
		"\xc8\x01\x08": `200 "12345-" client: key "k /": gateway: the call may have run: the answer does not have its declared length: unexpected EOF`,
		"\xcc\x01\x07": `204 "" <nil>`,
	} {
		cfg := clientWay(t, "link", func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Length", "6")
			io.WriteString(rw, body)
		})
		cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			return &site.RogueConn{Conn: c, Answered: [2]string{honest, answered}}, err
		}
		res, err := site.NewClient(t, cfg).RoundTrip(keyed(t, "GET", "/", nil))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		if got := fmt.Sprintf("%d %q %v", res.StatusCode, text, err); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
		res.Body.Close()
	}
}
