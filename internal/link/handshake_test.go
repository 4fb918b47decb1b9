package link

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
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

// TestUnknownStore: an end that does not know its store, or is too old to say,
// is not refused.
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
	now, old := hello{version: Version, store: 7}, hello{version: Version}
	b := now.append(nil)
	if got, err := decodeHello(b); got != now || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := decodeHello(b[:len(b)-8]); got != old || err != nil {
		t.Errorf("without a store: %+v, %v", got, err)
	}
	if _, err := decodeHello(b[:len(b)-1]); err == nil {
		t.Error("a part of a store is taken")
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
		go peer.write(t, appendFrame([]byte(preface), header{kind: kindHello}, []byte{Version + 1, 'n', 'e', 'w'}))
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

// TestSplit serves links and plain HTTP/1.1 on one port, with TLS, without,
// and on a Unix socket.
func TestSplit(t *testing.T) {
	cert := httptest.NewUnstartedServer(nil)
	cert.StartTLS()
	defer cert.Close()
	trust := cert.Client().Transport.(*http.Transport).TLSClientConfig
	for name, tc := range map[string]struct {
		network string
		tls     bool
	}{"tcp": {"tcp", false}, "tls": {"tcp", true}, "unix": {"unix", false}} {
		t.Run(name, func(t *testing.T) {
			addr := "127.0.0.1:0"
			if tc.network == "unix" {
				addr = filepath.Join(t.TempDir(), "worker")
			}
			ln, err := net.Listen(tc.network, addr)
			if err != nil {
				t.Fatal(err)
			}
			network, addr := tc.network, ln.Addr().String()
			c := &Client{Addr: addr}
			defer c.Close()
			if network == "unix" {
				c.Addr = "unix:" + addr
			}
			scheme := "http"
			if tc.tls {
				scheme = "https"
				ln = tls.NewListener(ln, &tls.Config{Certificates: cert.TLS.Certificates, NextProtos: []string{ALPN, "http/1.1"}})
				c.TLS = trust.Clone()
				c.TLS.ServerName = "example.com"
			}
			hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if tc.tls && r.ProtoMajor == 1 && r.Header.Get("Via") == "" && r.TLS == nil {
					t.Error("net/http does not know of TLS")
				}
				io.WriteString(w, "hello")
			})
			links, others := Split(ln, SplitConfig{})
			linked, plain := &Server{Handler: HTTPHandler(hello), Config: logless()}, &http.Server{Handler: hello}
			ended := make(chan error, 2)
			go func() { ended <- linked.Serve(links) }()
			go func() { ended <- plain.Serve(others) }()

			via := &Request{Method: "GET", Target: "/", Host: "h", Fields: AppendField(nil, "Via", "link")}
			if got, err := fetch(t.Context(), c, via); got != "hello" || err != nil {
				t.Errorf("link: got %q, %v", got, err)
			}
			tr := &http.Transport{TLSClientConfig: trust, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, addr)
			}}
			defer tr.CloseIdleConnections()
			resp, err := (&http.Client{Transport: tr}).Get(scheme + "://example.com/")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if b, err := io.ReadAll(resp.Body); string(b) != "hello" || err != nil {
				t.Errorf("plain: got %q, %v", b, err)
			}
			linked.Close()
			plain.Close()
			want(t, <-ended, http.ErrServerClosed, ErrClosed)
			want(t, <-ended, http.ErrServerClosed, ErrClosed)
			if _, err := net.Dial(network, addr); err == nil {
				t.Error("the listener is still open")
			}
		})
	}
}

// TestSplitBoundsSilence: connections that say nothing are closed in time,
// and too many of them at once.
func TestSplitBoundsSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := newMemoryListener()
		links, others := Split(ln, SplitConfig{Timeout: time.Second, Pending: 2})
		start := time.Now()
		a, b, c := ln.dial(), ln.dial(), ln.dial()
		if _, err := c.Read(make([]byte, 1)); err == nil || time.Since(start) > 0 {
			t.Errorf("the third was not closed at once: %v", err)
		}
		for _, nc := range []net.Conn{a, b} {
			if _, err := nc.Read(make([]byte, 1)); err == nil || time.Since(start) != time.Second {
				t.Errorf("not closed after a second: %v, %v", err, time.Since(start))
			}
		}
		late := ln.dial()
		synctest.Wait()
		links.Close()
		others.Close()
		if _, err := late.Read(make([]byte, 1)); err == nil || time.Since(start) != time.Second {
			t.Errorf("closing did not close what was waiting: %v", err)
		}
		if _, err := links.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
}

// memoryListener is a net.Listener over pipes.
type memoryListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newMemoryListener() *memoryListener {
	return &memoryListener{make(chan net.Conn), make(chan struct{})}
}

func (l *memoryListener) dial() net.Conn {
	near, far := net.Pipe()
	l.conns <- far
	return near
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case nc := <-l.conns:
		return nc, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error {
	close(l.closed)
	return nil
}

func (l *memoryListener) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }
