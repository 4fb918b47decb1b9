package link

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/internal/wire/netutil"
)

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
			dial := func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, network, addr) }
			c := &Client{Addr: addr, Dial: dial}
			defer c.Close()
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
			tr := &http.Transport{TLSClientConfig: trust, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}
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

// TestSplitBoundsSilence: connections that say nothing are closed in time, and
// when there are too many the one that has said nothing for longest.
func TestSplitBoundsSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := newMemoryListener()
		links, others := Split(ln, SplitConfig{Timeout: 3 * time.Second, Pending: 2, Logger: logless().Logger})
		start := time.Now()
		a, b, c := ln.dial(), ln.dial(), ln.dial()
		for _, wait := range []struct {
			net.Conn
			time.Duration
		}{{a, time.Second}, {b, 3 * time.Second}, {c, 4 * time.Second}} {
			if _, err := wait.Read(make([]byte, 1)); err == nil || time.Since(start) != wait.Duration {
				t.Errorf("closed after %v, want %v: %v", time.Since(start), wait.Duration, err)
			}
		}
		late := ln.dial()
		synctest.Wait()
		links.Close()
		others.Close()
		if _, err := late.Read(make([]byte, 1)); err == nil || time.Since(start) != 4*time.Second {
			t.Errorf("closing did not close what was waiting: %v", err)
		}
		if _, err := links.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
}

// TestSplitHandsLinksOn: what waits on the other listener, on which nobody
// accepts, is bounded and does not hold up links, nor does a failure of Accept.
func TestSplitHandsLinksOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := &exhaustedListener{memoryListener: newMemoryListener()}
		links, others := Split(ln, SplitConfig{Pending: 2, Logger: logless().Logger})
		defer links.Close()
		defer others.Close()
		var waiting []net.Conn
		for range 3 {
			nc := ln.dial()
			go nc.Write([]byte("GET / HTTP/1.1\r\n"))
			synctest.Wait()
			waiting = append(waiting, nc)
		}
		if _, err := waiting[0].Read(make([]byte, 1)); err == nil {
			t.Error("the one that has waited longest is still there")
		}
		ln.failures.Store(3)
		link := ln.dial()
		go link.Write([]byte(preface))
		nc, err := links.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		if nc, err = others.Accept(); err != nil { // the link took the place of another one
			t.Fatal(err)
		}
		defer nc.Close()
	})
}

// exhaustedListener is a listener that fails some times, as for want of file
// descriptors.
type exhaustedListener struct {
	memoryListener
	failures atomic.Int32
}

func (l *exhaustedListener) Accept() (net.Conn, error) {
	nc, err := l.memoryListener.Accept()
	if err == nil && l.failures.Add(-1) >= 0 {
		go l.Put(nc, nil, nil)
		return nil, syscall.EMFILE
	}
	return nc, err
}

// memoryListener is a net.Listener over pipes.
type memoryListener struct{ *netutil.Listener }

func newMemoryListener() memoryListener {
	return memoryListener{netutil.NewListener(&net.UnixAddr{Name: "memory"})}
}

func (l memoryListener) dial() net.Conn {
	near, far := net.Pipe()
	l.Put(far, nil, nil)
	return near
}
