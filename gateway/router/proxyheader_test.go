package router_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// loopback are the networks of what runs on this machine.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

const proxyV2 = "\r\n\r\n\x00\r\nQUIT\n"

// proxied serves a router whose peers on this machine speak the PROXY protocol, in
// front of an app that answers with what it is told of the client.
func proxied(t *testing.T, serve func(*router.Server, net.Listener) error, change ...func(*router.Config)) (base string) {
	t.Helper()
	change = append(change, func(c *router.Config) { c.ProxyProtocol = loopback })
	_, rt, _ := route(t, throughNetHTTP, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header["X-Forwarded-For"], r.Header["Forwarded"])
	}, change...)
	l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))
	f := router.NewServer(rt, site.NetServer())
	done := make(chan struct{})
	go func() {
		defer close(done)
		serve(f, l)
	}()
	t.Cleanup(func() {
		f.Close()
		<-done
	})
	return "http://" + l.Addr().String()
}

func TestProxyProtocol(t *testing.T) {
	base := proxied(t, (*router.Server).Serve, func(c *router.Config) {
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
	})
	const request = "GET %s HTTP/1.1\r\nHost: h\r\nX-Key: k\r\nX-Forwarded-For: 203.0.113.1\r\n\r\n"
	simple, odd := fmt.Sprintf(request, "/"), fmt.Sprintf(request, `/"odd"`)
	h2 := "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + kit.H2Frame(4, 0, 0, "") + h2Head(true, ":method", "GET", ":scheme", "http", ":authority", "h", ":path", "/", "x-key", "k")
	tests := map[string]struct{ sent, want string }{
		"version 1":          {"PROXY TCP4 192.0.2.7 192.0.2.8 1234 80\r\n" + simple, "[192.0.2.7]"},
		"handed over":        {"PROXY TCP4 192.0.2.7 192.0.2.8 1234 80\r\n" + odd, "[192.0.2.7]"},
		"IPv6":               {"PROXY TCP6 2001:db8::7 2001:db8::8 1234 80\r\n" + simple, "[2001:db8::7]"},
		"version 2":          {proxyV2 + "\x21\x11\x00\x0c\xc0\x00\x02\x07\xc0\x00\x02\x08\x04\xd2\x00\x50" + simple, "[192.0.2.7]"},
		"more in version 2":  {proxyV2 + "\x21\x11\x00\x10\xc0\x00\x02\x07\xc0\x00\x02\x08\x04\xd2\x00\x50\x04\x00\x01x" + simple, "[192.0.2.7]"},
		"the proxy's own":    {proxyV2 + "\x20\x00\x00\x00" + simple, "[127.0.0.1]"},
		"unknown":            {"PROXY UNKNOWN\r\n" + simple, "[127.0.0.1]"},
		"a trusted proxy's":  {"PROXY TCP4 198.51.100.7 192.0.2.8 1234 80\r\n" + simple, "[203.0.113.1, 198.51.100.7]"},
		"HTTP/2":             {"PROXY TCP4 192.0.2.7 192.0.2.8 1234 80\r\n" + h2, "[192.0.2.7]"},
		"without":            {simple, ""},
		"malformed":          {"PROXY TCP4 192.0.2 192.0.2.8 1234 80\r\n" + simple, ""},
		"HTTP/2 without":     {h2, ""},
		"version 3":          {proxyV2 + "\x31\x11\x00\x00" + simple, ""},
		"two of them":        {"PROXY TCP4 192.0.2.7 192.0.2.8 1 80\r\nPROXY TCP4 192.0.2.9 192.0.2.8 1 80\r\n" + simple, "400 Bad Request"},
		"nothing but an end": {"PROXY", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			conn := kit.Dial(t, base)
			io.WriteString(conn, tt.sent)
			if tt.want == "" {
				conn.(*net.TCPConn).CloseWrite()
				if got, _ := io.ReadAll(conn); len(got) > 0 {
					t.Errorf("%q", got)
				}
				return
			}
			var got []byte
			for in := bufio.NewReader(conn); !strings.Contains(string(got), tt.want); {
				b, err := in.ReadByte()
				if err != nil {
					t.Fatalf("%q, want %s in it", got, tt.want)
				}
				got = append(got, b)
			}
		})
	}
}

// bytewise is a listener whose connections are read byte by byte.
type bytewise struct{ net.Listener }

func (l bytewise) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return bytewiseConn{conn}, err
}

type bytewiseConn struct{ net.Conn }

func (c bytewiseConn) Read(p []byte) (int, error) { return c.Conn.Read(p[:min(len(p), 1)]) }

// Headers of every form are read, in however many segments they come. One that names nobody
// leaves a connection its own address.
func TestTrapProxyHeaderForms(t *testing.T) {
	const request, own = "GET / HTTP/1.1\r\nHost: h\r\nX-Key: k\r\n\r\n", "127.0.0.1"
	v4, v6 := "\xc0\x00\x02\x07\xc0\x00\x02\x08\x04\xd2\x00\x50", "\x20\x01\x0d\xb8"+strings.Repeat("\x00", 11)+"\x07"+strings.Repeat("\x00", 20)
	tlvs := "\x04\x0f\x00" + strings.Repeat("x", 0xf00)
	forms := map[string]struct{ sent, want string }{
		"version 1":               {"PROXY TCP4 192.0.2.7 192.0.2.8 1234 80\r\n", "192.0.2.7"},
		"longest":                 {"PROXY TCP6 " + strings.Repeat("2001:0db8:0000:0000:0000:0000:0000:0007 ", 2) + "65535 65535\r\n", "2001:db8::7"},
		"unknown":                 {"PROXY UNKNOWN\r\n", own},
		"longest unknown":         {"PROXY UNKNOWN " + strings.Repeat(strings.Repeat("ffff:", 7)+"ffff ", 2) + "65535 65535\r\n", own},
		"version 2":               {proxyV2 + "\x21\x11\x00\x0c" + v4, "192.0.2.7"},
		"IPv6":                    {proxyV2 + "\x21\x21\x00\x24" + v6, "2001:db8::7"},
		"large":                   {proxyV2 + "\x21\x11\x0f\x0f" + v4 + tlvs, "192.0.2.7"},
		"LOCAL":                   {proxyV2 + "\x20\x00\x00\x00", own},
		"LOCAL with a family":     {proxyV2 + "\x20\x11\x00\x00", own},
		"LOCAL with an address":   {proxyV2 + "\x20\x11\x00\x0c" + v4, own},
		"LOCAL of another family": {proxyV2 + "\x20\x44\x00\x01x", own},
		"no family":               {proxyV2 + "\x21\x00\x00\x00", own},
		"no family, and more":     {proxyV2 + "\x21\x00\x0f\x03" + tlvs, own},
		"a datagram's":            {proxyV2 + "\x21\x12\x00\x0c" + v4, own},
		"of a file system":        {proxyV2 + "\x21\x31\x00\xd8" + strings.Repeat("/", 0xd8), own},
		"too long":                {proxyV2 + "\x21\x11\x10\x01" + strings.Repeat("\x01", 0x1001), ""},
		"too long a LOCAL":        {proxyV2 + "\x20\x00\x10\x01" + strings.Repeat("\x01", 0x1001), ""},
		"too long a version 1":    {"PROXY UNKNOWN " + strings.Repeat("x", 92) + "\r\n", ""},
		"short of an address":     {proxyV2 + "\x21\x11\x00\x0b" + v4, ""},
		"another command":         {proxyV2 + "\x22\x00\x00\x00", ""},
	}
	for way, listen := range map[string]func(net.Listener) net.Listener{
		"whole":        func(l net.Listener) net.Listener { return l },
		"byte by byte": func(l net.Listener) net.Listener { return bytewise{l} },
	} {
		base := proxied(t, func(f *router.Server, l net.Listener) error { return f.Serve(listen(l)) })
		for name, tt := range forms {
			t.Run(name+", "+way, func(t *testing.T) {
				conn := kit.Dial(t, base)
				io.WriteString(conn, tt.sent+request)
				res, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					if tt.want != "" {
						t.Error(err)
					}
					return
				}
				if body, _ := io.ReadAll(res.Body); !strings.HasPrefix(string(body), "["+tt.want+"]") {
					t.Errorf("the app sees %s, want %q", body, tt.want)
				}
			})
		}
	}
}

func TestProxyProtocolBeforeTLS(t *testing.T) {
	cert, key, trusted := kit.Certificate(t)
	base := proxied(t, func(f *router.Server, l net.Listener) error { return f.ServeTLS(l, cert, key) })
	conn := kit.Dial(t, base)
	io.WriteString(conn, "PROXY TCP4 192.0.2.7 192.0.2.8 1234 80\r\n")
	secure := tls.Client(conn, &tls.Config{RootCAs: trusted, ServerName: "127.0.0.1"})
	io.WriteString(secure, "GET / HTTP/1.1\r\nHost: h\r\nX-Key: k\r\n\r\n")
	res := kit.Must(http.ReadResponse(bufio.NewReader(secure), nil))
	if body, err := io.ReadAll(res.Body); err != nil || !strings.HasPrefix(string(body), "[192.0.2.7]") {
		t.Errorf("%s %v", body, err)
	}
}

// A header of who is not among the proxies is none.
func TestProxyProtocolOfStrangers(t *testing.T) {
	_, rt, _ := route(t, throughNetHTTP, site.Answer("passed"), func(c *router.Config) {
		c.ProxyProtocol = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	})
	base, _ := frontOf(t, rt)
	if got := sendRaw(t, base, "PROXY TCP4 192.0.2.7 192.0.2.8 1234 80\r\nGET / HTTP/1.1\r\nHost: h\r\nX-Key: k\r\n\r\n"); !strings.Contains(got, "400 Bad Request") {
		t.Error(got)
	}
	if got := sendRaw(t, base, "GET / HTTP/1.1\r\nHost: h\r\nX-Key: k\r\n\r\n"); !strings.Contains(got, "passed") {
		t.Error(got)
	}
}

// A server that shuts down does not wait for proxies that say nothing.
func TestShutdownEndsSilentProxies(t *testing.T) {
	logs := new(kit.Buffer)
	_, rt, _ := route(t, throughNetHTTP, site.Answer(""), func(c *router.Config) {
		c.ProxyProtocol, c.Logger = loopback, slog.New(slog.NewTextHandler(logs, nil))
	})
	base, f := frontOf(t, rt)
	silent := kit.Dial(t, base)
	bad := kit.Dial(t, base)
	io.WriteString(bad, "GET / HTTP/1.1\r\n\r\n")
	io.ReadAll(bad) // once it is closed, the server has the other one, too
	if err := f.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if got, _ := io.ReadAll(silent); len(got) > 0 {
		t.Errorf("%q", got)
	}
	if !strings.Contains(logs.String(), "--proxy-protocol") {
		t.Errorf("the log says %s", logs)
	}
}

// A client has so many connections; idle ones make room for its new ones.
func TestConnectionsOfAClientAreBounded(t *testing.T) {
	app := &kit.Blocking{Release: make(chan struct{})}
	_, rt, _ := route(t, throughNetHTTP, app.ServeHTTP, func(c *router.Config) {
		c.ProxyProtocol, c.MaxConnectionsPerClient = loopback, 2
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
	})
	base, _ := frontOf(t, rt)
	connect := func(from string) net.Conn {
		conn := kit.Dial(t, base)
		family := "TCP4"
		if strings.Contains(from, ":") {
			family = "TCP6"
		}
		destination := map[string]string{"TCP4": "192.0.2.8", "TCP6": "2001:db8::8"}[family]
		fmt.Fprintf(conn, "PROXY %s %s %s 1 2\r\n", family, from, destination)
		return conn
	}
	block := func(from string) net.Conn {
		running := app.Running.Load()
		conn := connect(from)
		kit.SendRaw(t, conn, "/block", fmt.Sprint(from, running))
		kit.Eventually(t, "a request runs", func() bool { return app.Running.Load() == running+1 })
		return conn
	}
	refused := func(from string) bool {
		got, _ := io.ReadAll(connect(from))
		return strings.HasPrefix(string(got), "HTTP/1.1 429 ")
	}
	first := block("192.0.2.1")
	block("192.0.2.1")
	if !refused("192.0.2.1") {
		t.Error("a third connection is taken")
	}
	for _, other := range []string{"192.0.2.2", "192.0.2.2", "198.51.100.1", "198.51.100.1", "198.51.100.1", "127.0.0.9", "127.0.0.9", "127.0.0.9", "2001:db8:1:1::1", "2001:db8:1:1::2", "2001:db8:1:2::1"} {
		block(other)
	}
	if !refused("2001:db8:1:1::3") {
		t.Error("a third connection of a network is taken")
	}
	first.Close()
	kit.Eventually(t, "its place is free", func() bool { return served(connect("192.0.2.1")) }) // and idle then
	kit.Eventually(t, "an idle one makes room", func() bool { return served(connect("192.0.2.1")) })
	for range 2 {
		conn := connect("192.0.2.3")
		kit.ReadServed(t, kit.SendRaw(t, conn, `/a"b`, "handed over"))
	}
	kit.Eventually(t, "an idle one that net/http serves makes room", func() bool { return served(connect("192.0.2.3")) })
	close(app.Release)
}

// served sends a request and reports whether it is not refused.
func served(conn net.Conn) bool {
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: h\r\nX-Key: x\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	return err == nil && res.StatusCode == http.StatusOK
}
