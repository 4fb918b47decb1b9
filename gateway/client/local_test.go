package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/client"
	"github.com/keyway-go/keyway/gateway/internal/local"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

// withOwnWorker runs a test in a bubble with a client whose process owns all keys.
func withOwnWorker(t *testing.T, app http.HandlerFunc, test func(t *testing.T, c *client.Client)) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).StartOwner(func(cfg *worker.Config) { cfg.AnswerMax = 64 << 10 })
		test(t, site.NewClient(t, client.Config{Members: w.Member, Local: w.Local(w.Handler(app))}))
	})
}

// A worker of the process takes requests in memory.
func TestClientOfItsOwnWorker(t *testing.T) {
	withOwnWorker(t, func(rw http.ResponseWriter, r *http.Request) {
		token, _ := worker.TokenFrom(r.Context())
		fmt.Fprint(rw, r.RemoteAddr, token > 0)
	}, func(t *testing.T, c *client.Client) {
		if _, text := kit.Do(t, &http.Client{Transport: c}, keyed(t, "GET", "/", nil)); text != "127.0.0.1:0true" {
			t.Errorf("%q", text)
		}
	})
}

// A handler that asks for the key of the execution that has called it does not wait for itself. What it leaves behind waits
// for others, as any call does.
func TestTrapHandlerAsksForTheKeyOfItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).StartOwner()
		hold := func(d time.Duration) func(gateway.Execution) error {
			return func(gateway.Execution) error {
				time.Sleep(d)
				return nil
			}
		}
		var within error
		var left context.Context
		c := site.NewClient(t, client.Config{Members: w.Member, Local: w.Local(w.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			left = context.WithoutCancel(r.Context())
			within = w.Do(left, "outer", hold(0))
		})))})
		began := time.Now()
		err := w.Do(t.Context(), "outer", func(x gateway.Execution) error {
			res, err := c.RoundTrip(keyed(t, "GET", "/", nil).WithContext(x.Context()))
			if err == nil {
				err = res.Body.Close()
			}
			return err
		})
		if took := time.Since(began); err != nil || !errors.Is(within, gateway.ErrNested) || took >= time.Second {
			t.Errorf("%v; the call of the handler: %v, after %v", err, within, took)
		}
		go w.Do(t.Context(), "outer", hold(time.Second))
		synctest.Wait()
		if err := w.Do(left, "outer", hold(0)); err != nil || time.Since(began) < time.Second {
			t.Errorf("a call that is left behind: %v, after %v", err, time.Since(began))
		}
	})
}

// The key is not held while a small body comes.
func TestClientsBodyHoldsNoKey(t *testing.T) {
	withOwnWorker(t, func(rw http.ResponseWriter, r *http.Request) { io.Copy(rw, r.Body) }, func(t *testing.T, c *client.Client) {
		body, w := io.Pipe()
		slow := keyed(t, "POST", "/", body)
		slow.ContentLength = 4
		answered := make(chan string)
		go func() {
			_, text := kit.Do(t, &http.Client{Transport: c}, slow)
			answered <- text
		}()
		io.WriteString(w, "bo")
		synctest.Wait()
		if _, text := kit.Do(t, &http.Client{Transport: c}, keyed(t, "POST", "/", strings.NewReader("quick"))); text != "quick" {
			t.Errorf("%q", text)
		}
		io.WriteString(w, "dy")
		w.Close()
		if text := <-answered; text != "body" {
			t.Errorf("%q", text)
		}
	})
}

// An answer that nobody reads takes a bounded part of memory.
func TestClientsAnswerIsBounded(t *testing.T) {
	var wrote atomic.Int64
	withOwnWorker(t, func(rw http.ResponseWriter, r *http.Request) {
		for piece := make([]byte, 1000); ; {
			n, err := rw.Write(piece)
			if err != nil {
				return
			}
			wrote.Add(int64(n))
		}
	}, func(t *testing.T, c *client.Client) {
		res, err := c.RoundTrip(keyed(t, "GET", "/", nil))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		synctest.Wait()
		if n := wrote.Load(); n < 60<<10 || n > 192<<10 {
			t.Errorf("%d bytes wait for their reader", n)
		}
		if n, err := io.CopyN(io.Discard, res.Body, 1<<20); n != 1<<20 || err != nil {
			t.Errorf("%d %v", n, err)
		}
	})
}

// A handler that ends because its caller has left has not answered.
func TestClientThatLeavesItsOwnWorker(t *testing.T) {
	withOwnWorker(t, func(rw http.ResponseWriter, r *http.Request) {
		io.WriteString(rw, "half")
		rw.(http.Flusher).Flush()
		<-r.Context().Done()
	}, func(t *testing.T, c *client.Client) {
		ctx, cancel := context.WithCancel(t.Context())
		res, err := c.RoundTrip(keyed(t, "GET", "/", nil).WithContext(ctx))
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		synctest.Wait()
		if text, err := io.ReadAll(res.Body); err == nil {
			t.Errorf("the whole is %q", text)
		}
	})
}

// A worker of the process that refuses is like any other: the request goes on.
func TestClientWhoseOwnWorkerRefuses(t *testing.T) {
	var body atomic.Value
	other := site.NewFake(t, "other", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		body.Store(string(b))
		io.WriteString(w, "other")
	})
	away := site.Leaving(other.Member)
	own := site.Member("own", "own:80")
	for _, length := range []int64{4, -1} {
		var asked atomic.Int64
		client := site.NewClient(t, client.Config{
			Members: hub.Of(own, away),
			Local: newFakeLocal(t, own.Incarnation, func(w *link.ResponseWriter, _ *link.ServerRequest) {
				asked.Add(1)
				w.Refuse(&link.RefusedError{Reason: link.NotOwner, Owner: away.Incarnation, Epoch: 7})
			}),
		})
		r := keyed(t, "POST", "/", io.MultiReader(strings.NewReader("body")))
		r.ContentLength = length
		if _, text := kit.Do(t, &http.Client{Transport: client}, r); text != "other" || body.Load() != "body" || asked.Load() != 1 {
			t.Errorf("%d bytes: %q, with the body %q", length, text, body.Load())
		}
	}
}

// fakeLocal is a worker of the process that does with requests what it likes.
type fakeLocal struct {
	local.Worker
	incarnation, addr string
}

func newFakeLocal(t *testing.T, incarnation string, h link.HandlerFunc) fakeLocal {
	return fakeLocal{nil, incarnation, site.LinkWorker(t, h).Addr}
}

func (f fakeLocal) Incarnation() string { return f.incarnation }

func (fakeLocal) Baggage(_ context.Context, baggage []string) []string { return baggage }

func (f fakeLocal) Dial(ctx context.Context) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", f.addr)
}

// A body of which another worker's link has read a part arrives whole at the worker
// of the process.
func TestClientWhoseOwnWorkerIsSecond(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 1000)
	for _, length := range []int64{int64(len(content)), -1} {
		own := refuser(t, 0, link.RefusedError{}, 0)
		own.Name, own.Incarnation, own.State = "own", "own-life", ring.StateLeaving
		first := refuser(t, 1, link.RefusedError{Reason: link.NotOwner, Owner: "own-life", Epoch: 7}, 100)
		client := site.NewClient(t, client.Config{
			Members: hub.Of(own, first),
			Local: newFakeLocal(t, own.Incarnation, func(w *link.ResponseWriter, r *link.ServerRequest) {
				fmt.Fprint(w, site.Sum(r.Body))
			}),
		})
		r := keyed(t, "POST", "/", io.MultiReader(bytes.NewReader(content)))
		r.ContentLength = length
		if _, text := kit.Do(t, &http.Client{Transport: client}, r); text != site.Sum(bytes.NewReader(content)) {
			t.Errorf("%d bytes: %q", length, text)
		}
	}
}
