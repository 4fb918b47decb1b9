package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestMismatch: both ends say what differs, and nothing starts.
func TestMismatch(t *testing.T) {
	for what, change := range map[string]func(*Config){
		"cluster":              func(c *Config) { c.Cluster = "blue" },
		"configuration digest": func(c *Config) { c.Digest++ },
		"store":                func(c *Config) { c.Store = func() uint64 { return 2 } },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t, func(w *ResponseWriter, r *ServerRequest) { t.Error("it ran") }, Config{Cluster: "green", Digest: 7, Store: func() uint64 { return 1 }})
				change(&p.Client.Config)
				_, err := p.get(t, "/")
				want(t, err, ErrNotStarted)
				p.Client.Close()
				p.wg.Wait()
				for _, err := range []error{err, p.ended[0]} {
					mismatch, ok := errors.AsType[*MismatchError](err)
					if !ok || mismatch.What != what || mismatch.Local == mismatch.Remote || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), "same --") {
						t.Errorf("got %v", err)
					}
				}
			})
		})
	}
}

// TestUnknownStore: an end that does not know its store is not refused.
func TestUnknownStore(t *testing.T) {
	for name, store := range map[string]func() uint64{"none": nil, "not yet": func() uint64 { return 0 }} {
		synctest.Test(t, func(t *testing.T) {
			p := newPair(t, func(w *ResponseWriter, r *ServerRequest) { w.WriteHead(200, 0, nil) }, Config{Store: store})
			p.Server.Config.Store = func() uint64 { return 1 }
			if _, err := p.get(t, "/"); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// TestStoreBecomesAnother: a server whose store becomes another one than the
// client's finishes what runs and takes nothing new; the client learns why.
func TestStoreBecomesAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store atomic.Uint64
		store.Store(1)
		release := make(chan struct{})
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
			<-release
			w.WriteHead(200, 0, nil)
		}, Config{Store: func() uint64 { return 1 }})
		p.Server.Config.Store = store.Load
		first := make(chan error, 1)
		go func() {
			_, err := p.get(t, "/")
			first <- err
		}()
		synctest.Wait()
		store.Store(2)
		time.Sleep(3 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := fetch(ctx, &p.Client, post(""))
		if mismatch, ok := errors.AsType[*MismatchError](err); !ok || mismatch.What != "store" || !errors.Is(err, ErrNotStarted) {
			t.Errorf("the next request: %v", err)
		}
		close(release)
		if err := <-first; err != nil {
			t.Errorf("the one that ran: %v", err)
		}
	})
}

// TestMismatchIsSaidOnce: a client that keeps trying does not fill the log.
func TestMismatchIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) {}, Config{Store: func() uint64 { return 1 }})
		p.Server.Config.Store = func() uint64 { return 2 }
		p.Server.Config.Logger = slog.New(slog.NewTextHandler(&log, nil))
		for range 5 {
			p.get(t, "/")
			time.Sleep(5 * time.Second)
		}
		p.Client.Close()
		p.wg.Wait()
		if n := strings.Count(log.String(), "store differs"); n != 1 || p.dials.Load() < 2 || !strings.Contains(log.String(), "level=WARN") {
			t.Errorf("%d times after %d connections:\n%s", n, p.dials.Load(), &log)
		}
	})
}

// TestOtherVersion: a hello of another version may have any form after its
// number.
func TestOtherVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{Config: logless()}
		near, far := net.Pipe()
		served := make(chan error)
		go func() { served <- s.ServeConn(far) }()
		peer := newFakePeer(near)
		go peer.write(t, helloFrameOf(Version+1))
		if p, err := peer.in.next(len(preface)); string(p) != preface || err != nil {
			t.Errorf("got %q, %v", p, err)
		}
		peer.frame(t)
		mismatch, ok := errors.AsType[*MismatchError](<-served)
		if !ok || mismatch.What != "version" || mismatch.Remote != fmt.Sprint(Version+1) {
			t.Errorf("got %v", mismatch)
		}
	})
}

// TestSilentClient: the handshake is bounded in time at the server, too.
func TestSilentClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{Config: logless()}
		near, far := net.Pipe()
		defer near.Close()
		start := time.Now()
		if err := s.ServeConn(far); err == nil {
			t.Error("no error")
		}
		if d := time.Since(start); d != 5*time.Second {
			t.Errorf("gave up after %v", d)
		}
	})
}

// TestNoLink: a worker that speaks plain HTTP/1.1 is told apart from a
// broken one.
func TestNoLink(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	c := &Client{Addr: plain.Listener.Addr().String()}
	defer c.Close()
	_, err := c.Do(t.Context(), post(""))
	want(t, err, ErrNoLink)
	want(t, err, ErrNotStarted)

	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.EnableHTTP2 = true
	secure.StartTLS()
	defer secure.Close()
	cfg := secure.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	cfg.ServerName = "example.com"
	s := &Client{Addr: secure.Listener.Addr().String(), TLS: cfg}
	defer s.Close()
	_, err = s.Do(t.Context(), post(""))
	want(t, err, ErrNoLink)
}

// TestServerBoundsConnections: over the bound a connection takes the place of
// one that has not said hello, and is closed if all have.
func TestServerBoundsConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) { text(w, "hello") }, Config{})
		p.MaxConns = 2
		var silent []net.Conn
		for range 2 {
			nc, err := p.Dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			silent = append(silent, nc)
		}
		second := &Client{Dial: p.Dial, Config: p.Client.Config}
		defer second.Close()
		for i, c := range []*Client{&p.Client, second} {
			if got, err := fetch(t.Context(), c, &Request{Method: "GET", Target: "/", Host: "h"}); got != "hello" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
			if _, err := silent[i].Read(make([]byte, 1)); err == nil {
				t.Errorf("%d: still there", i)
			}
		}
		third := &Client{Dial: p.Dial, Config: p.Client.Config}
		defer third.Close()
		_, err := fetch(t.Context(), third, &Request{Method: "GET", Target: "/", Host: "h"})
		want(t, err, ErrNotStarted)
		for _, c := range []*Client{&p.Client, second} {
			if got, err := fetch(t.Context(), c, &Request{Method: "GET", Target: "/", Host: "h"}); got != "hello" || err != nil {
				t.Errorf("afterwards: %q, %v", got, err)
			}
		}
		second.Close()
		time.Sleep(5 * time.Second) // clients do not try again at once
		if got, err := fetch(t.Context(), third, &Request{Method: "GET", Target: "/", Host: "h"}); got != "hello" || err != nil {
			t.Errorf("when one has gone: %q, %v", got, err)
		}
	})
}
