package worker_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/certs"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

// trust returns TLS between members with a certificate of one CA that takes those of
// another, by name.
func trust(t *testing.T, name string, own, others *certs.CA, change func(*x509.Certificate)) *gateway.PeerTLS {
	t.Helper()
	cert, key, err := own.Issue(t.TempDir(), "member", change)
	if err != nil {
		t.Fatal(err)
	}
	both := kit.Join(t, own.File, others.File)
	return kit.Must(gateway.LoadPeerTLS(gateway.PeerTLSConfig{CertFile: cert, KeyFile: key, CAFile: both, Name: name}))
}

func named(names ...string) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.DNSNames = names }
}

// A worker with TLS takes members with a certificate that its CAs have issued, for the
// link and for HTTP/1.1 alike, and no others; with Config.Direct others without one,
// who are no members. Both sides say what is wrong.
func TestTrapPeerTLS(t *testing.T) {
	const name = "member.example"
	dir := t.TempDir()
	ours, theirs := kit.Must(certs.NewCA(dir, "ours")), kit.Must(certs.NewCA(dir, "theirs"))
	on := func(t *testing.T) *gateway.PeerTLS { return trust(t, name, ours, ours, named(name)) }
	off := func(*testing.T) *gateway.PeerTLS { return nil }
	optional := func(t *testing.T) *gateway.PeerTLS {
		cert, key, err := ours.Issue(t.TempDir(), "member", named(name))
		if err != nil {
			t.Fatal(err)
		}
		return kit.Must(gateway.LoadPeerTLS(gateway.PeerTLSConfig{CertFile: cert, KeyFile: key, CAFile: ours.File, Name: name, Optional: true}))
	}
	member := func(t *testing.T, own *certs.CA, change func(*x509.Certificate)) *tls.Config {
		return trust(t, "", own, ours, change).ClientConfig()
	}
	show := func(t *testing.T, change func(*x509.Certificate)) *tls.Config { // whatever it is
		cfg := member(t, ours, nil)
		cert, key, err := ours.Issue(t.TempDir(), "member", change)
		if err != nil {
			t.Fatal(err)
		}
		shown := kit.Must(tls.LoadX509KeyPair(cert, key))
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &shown, nil }
		return cfg
	}
	const notTaken, noMember = "refuses the certificate", "not a member's"
	for title, tc := range map[string]struct {
		worker       func(*testing.T) *gateway.PeerTLS
		client       func(*testing.T) *tls.Config
		says, logged string // at the client, and at the worker; "": the request runs
	}{
		"no TLS":               {off, func(*testing.T) *tls.Config { return nil }, "", ""},
		"TLS":                  {on, func(t *testing.T) *tls.Config { return member(t, ours, named("a.example", name)) }, "", ""},
		"optional, without":    {optional, func(*testing.T) *tls.Config { return nil }, "", ""},
		"optional, with":       {optional, func(t *testing.T) *tls.Config { return member(t, ours, named(name)) }, "", ""},
		"optional, another CA": {optional, func(t *testing.T) *tls.Config { return member(t, theirs, named(name)) }, notTaken, "unknown authority"},
		"TLS here":             {on, func(*testing.T) *tls.Config { return nil }, "TLS between members differs: off here, on at the peer: give all members --peer-cert", "TLS between members differs: on here, off at the peer"},
		"TLS there": {off, func(t *testing.T) *tls.Config { return member(t, ours, named(name)) },
			"TLS between members differs: on here, off at the peer: give all members --peer-cert", "TLS between members differs: off here, on at the peer"},
		"another CA": {on, func(t *testing.T) *tls.Config { return member(t, theirs, named(name)) }, notTaken, "unknown authority"},
		"another CA at the worker": {func(t *testing.T) *gateway.PeerTLS { return trust(t, "", theirs, ours, nil) }, func(t *testing.T) *tls.Config { return member(t, ours, nil) },
			noMember, notTaken},
		"no certificate": {on, func(t *testing.T) *tls.Config {
			cfg := member(t, ours, nil)
			cfg.GetClientCertificate = nil
			return cfg
		}, notTaken, "client didn't provide a certificate"},
		"expired": {on, func(t *testing.T) *tls.Config {
			return show(t, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
		}, notTaken, "expired"},
		"another name": {on, func(t *testing.T) *tls.Config { return member(t, ours, named("other.example")) }, notTaken, "not " + name},
		"another name at the worker": {on, func(t *testing.T) *tls.Config {
			return trust(t, "other.example", ours, ours, named(name, "other.example")).ClientConfig()
		}, "not other.example", notTaken},
		"a server's certificate": {on, func(t *testing.T) *tls.Config {
			return show(t, func(c *x509.Certificate) {
				c.DNSNames, c.ExtKeyUsage = []string{name}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
			})
		}, notTaken, "incompatible key usage"},
		"TLS 1.2": {on, func(t *testing.T) *tls.Config {
			cfg := member(t, ours, named(name))
			cfg.MinVersion, cfg.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
			return cfg
		}, "protocol version", "unsupported versions"},
	} {
		for _, direct := range []bool{false, true} {
			t.Run(title+map[bool]string{true: ", direct"}[direct], func(t *testing.T) {
				logs, peers := new(kit.Buffer), tc.worker(t)
				w := site.NewWith(t, ring.Settings{Ring: ring.Config{Partitions: 4}, PeerTLS: peers != nil, PeerTLSOptional: peers != nil && peers.Optional()}).StartReady(func(cfg *worker.Config) {
					cfg.PeerTLS, cfg.Direct, cfg.Logger = peers, direct, slog.New(slog.NewTextHandler(logs, nil))
				})
				addr := w.Listen(t, w.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { io.WriteString(rw, "ran") })))
				settings := w.Member.Settings()
				client := &link.Client{Addr: addr, TLS: tc.client(t), Config: link.Config{Cluster: settings.WithDefaults().Cluster, Digest: settings.Digest()}}
				defer client.Close()
				for way, send := range map[string]func() error{
					"link": func() error {
						res, err := client.Do(t.Context(), &link.Request{Method: "GET", Target: "/", Host: "x", Key: "k"})
						if err == nil {
							_, err = io.Copy(io.Discard, res.Body)
						}
						return err
					},
					"HTTP/1.1": func() error {
						transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return client.DialPlain(ctx) }}
						defer transport.CloseIdleConnections()
						req := kit.Must(http.NewRequestWithContext(t.Context(), "GET", "http://worker/", nil))
						req.Header.Set(gateway.HeaderKey, "k")
						res, err := transport.RoundTrip(req)
						if err != nil {
							return err
						}
						defer res.Body.Close()
						if text := string(kit.Must(io.ReadAll(res.Body))); text != "ran" {
							return errors.New(text)
						}
						return nil
					},
				} {
					err := send()
					if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
						t.Fatalf("%s: %v\nwant %q", way, err, tc.says)
					}
				}
				kit.Eventually(t, "the worker logs "+tc.logged, func() bool { return strings.Contains(logs.String(), tc.logged) })
			})
		}
	}
}

// Whoever is no member is taken only with Config.Direct, and then over TLS only, with
// a certificate of the worker's to rely on and none of his own.
func TestTrapStrangersOverTLS(t *testing.T) {
	ca := kit.Must(certs.NewCA(t.TempDir(), "ours"))
	anybody := &tls.Config{InsecureSkipVerify: true}
	asMember := kit.PeerTLS(t, ca, nil).ClientConfig()
	for _, direct := range []bool{false, true} {
		w := site.NewWith(t, ring.Settings{Ring: ring.Config{Partitions: 4}, PeerTLS: true}).StartReady(func(cfg *worker.Config) {
			cfg.PeerTLS, cfg.Direct, cfg.Keys = kit.PeerTLS(t, ca, nil), direct, kit.KeySources(t, "header:X-Key")
		})
		addr := w.Listen(t, w.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			io.WriteString(rw, r.Proto+" "+r.Header.Get(gateway.HeaderKey))
		})))
		for name, tc := range map[string]struct {
			scheme string
			cfg    *tls.Config
			h2     bool
			want   map[bool]string // by Direct
		}{
			"without TLS":         {"http", nil, false, map[bool]string{false: "400 this port takes TLS only\n", true: "400 this port takes TLS only\n"}},
			"TLS":                 {"https", anybody, false, map[bool]string{false: "certificate required", true: "200 HTTP/1.1 k"}},
			"TLS, HTTP/2":         {"https", anybody, true, map[bool]string{false: "", true: "200 HTTP/2.0 k"}},
			"a certificate alone": {"https", asMember, false, map[bool]string{false: "--direct", true: "200 HTTP/1.1 k"}},
		} {
			transport := &http.Transport{TLSClientConfig: tc.cfg.Clone(), Protocols: new(http.Protocols)}
			transport.Protocols.SetHTTP1(!tc.h2)
			transport.Protocols.SetHTTP2(tc.h2)
			req := kit.Must(http.NewRequestWithContext(t.Context(), "GET", tc.scheme+"://"+addr+"/", nil))
			req.Header.Set("X-Key", "k")
			req.Header.Set(gateway.HeaderKey, "other")
			got := ""
			if res, err := transport.RoundTrip(req); err != nil {
				got = err.Error()
			} else {
				got = res.Status[:4] + string(kit.Must(io.ReadAll(res.Body)))
				res.Body.Close()
			}
			if want := tc.want[direct]; !strings.Contains(got, want) || strings.HasPrefix(got, "200") != strings.HasPrefix(want, "200") {
				t.Errorf("%s, direct %v: %q, want %q", name, direct, got, tc.want[direct])
			}
			transport.CloseIdleConnections()
		}
	}
}

// A connection for HTTP/1.1 of a member ends with the worker's next CA, under which the
// member's certificate is none.
func TestTrapPeerTLSEndsWithItsCA(t *testing.T) {
	ours, next := kit.Must(certs.NewCA(t.TempDir(), "ours")), kit.Must(certs.NewCA(t.TempDir(), "next"))
	atWorker := kit.NewPeerTLSFiles(t, ours)
	w := site.NewWith(t, ring.Settings{Ring: ring.Config{Partitions: 4}, PeerTLS: true}).StartReady(func(cfg *worker.Config) { cfg.PeerTLS = atWorker.PeerTLS })
	addr := w.Listen(t, w.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { io.WriteString(rw, "ran") })))
	settings := w.Member.Settings()
	client := &link.Client{Addr: addr, TLS: kit.PeerTLS(t, ours, nil).ClientConfig(), Config: link.Config{Cluster: settings.WithDefaults().Cluster, Digest: settings.Digest()}}
	defer client.Close()
	conn := kit.Must(client.DialPlain(t.Context()))
	defer conn.Close()
	in := bufio.NewReader(conn)
	for _, want := range []struct {
		cas    []*certs.CA
		status int
	}{{[]*certs.CA{ours}, 200}, {[]*certs.CA{next, ours}, 200}, {[]*certs.CA{next}, 503}} {
		atWorker.Use(t, want.cas...)
		io.WriteString(conn, "GET / HTTP/1.1\r\nHost: h\r\nKeyway-Key: k\r\n\r\n")
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		body := string(kit.Must(io.ReadAll(res.Body)))
		if res.StatusCode != want.status || res.Close != (want.status != 200) || (res.Header.Get("Keyway-Refused") == "unavailable") != res.Close {
			t.Errorf("%d %v %q, want %d", res.StatusCode, res.Header, body, want.status)
		}
	}
}

// What members say of TLS and what they do is the same.
func TestPeerTLSIsSaidToMembers(t *testing.T) {
	peers := kit.PeerTLS(t, kit.Must(certs.NewCA(t.TempDir(), "ours")), nil)
	for _, said := range []bool{false, true} {
		c := site.NewWith(t, ring.Settings{PeerTLS: said})
		member := c.Hub.Join(ring.Member{Name: "w", Role: ring.RoleWorker, Addr: "w:80"})
		cfg := worker.Config{Members: member, Store: c.Store}
		if !said {
			cfg.PeerTLS = peers
		}
		if _, err := worker.Start(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "worker: Config.PeerTLS") {
			t.Errorf("said %v: %v", said, err)
		}
	}
}

// measuredWrites knows the longest write to a connection.
type measuredWrites struct {
	net.Conn
	longest *atomic.Int64
}

func (c measuredWrites) Write(p []byte) (int, error) {
	c.longest.Store(max(c.longest.Load(), int64(len(p))))
	return c.Conn.Write(p)
}

// What a member sends at once is one record, and one system call, from its first request on.
func TestPeerTLSSendsOneRecord(t *testing.T) {
	peers := kit.PeerTLS(t, kit.Must(certs.NewCA(t.TempDir(), "ours")), nil)
	w := site.NewWith(t, ring.Settings{Ring: ring.Config{Partitions: 4}, PeerTLS: true}).StartReady(func(cfg *worker.Config) { cfg.PeerTLS = peers })
	addr := w.Listen(t, w.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })))
	settings, longest := w.Member.Settings(), new(atomic.Int64)
	client := &link.Client{Addr: addr, TLS: peers.ClientConfig(),
		Config: link.Config{Cluster: settings.WithDefaults().Cluster, Digest: settings.Digest()},
		Dial: func(ctx context.Context) (net.Conn, error) {
			nc, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
			return measuredWrites{nc, longest}, err
		}}
	defer client.Close()
	for i := range 5 {
		longest.Store(0)
		body := strings.NewReader(strings.Repeat("x", 10<<10))
		res, err := client.Do(t.Context(), &link.Request{Method: "POST", Target: "/", Host: "x", Key: "k", Body: body, ContentLength: body.Size()})
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, res.Body)
		if n := longest.Load(); n < body.Size() {
			t.Errorf("request %d: at most %d bytes were written at once", i, n)
		}
	}
}
