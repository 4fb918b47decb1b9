package router_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/routes"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/wire/netutil"
)

// eagerApp changes to whatever protocol the field Upgrade names, as hypercorn
// does with h2c, and to HTTP/2 in earnest. To other requests it says what it
// sees of the fields of their connection.
func eagerApp(t *testing.T) http.HandlerFunc {
	tunnels := netutil.NewListener(&net.TCPAddr{})
	inner := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(rw, "token %s", r.Header.Get(gateway.HeaderToken))
	})}
	inner.Protocols.SetUnencryptedHTTP2(true)
	go inner.Serve(tunnels)
	t.Cleanup(func() { inner.Close() })
	return func(rw http.ResponseWriter, r *http.Request) {
		protocol := r.Header.Get("Upgrade")
		if protocol == "" && !r.URL.Query().Has("unasked") {
			for _, name := range []string{"Connection", "Upgrade", "Http2-Settings", "Http2_settings"} {
				fmt.Fprintf(rw, "%s%q ", name, r.Header[name])
			}
			return
		}
		conn, buf, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			rw.WriteHeader(http.StatusSwitchingProtocols)
			return
		}
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", protocol)
		if strings.EqualFold(protocol, "h2c") {
			done := make(chan struct{})
			tunnels.Put(&tunnel{conn, buf.Reader, done}, nil, nil)
			<-done
			return
		}
		io.Copy(conn, buf)
		conn.Close()
	}
}

// tunnel is a connection that was hijacked.
type tunnel struct {
	net.Conn
	in   *bufio.Reader
	done chan struct{}
}

func (c *tunnel) Read(p []byte) (int, error) { return c.in.Read(p) }

func (c *tunnel) Close() error {
	select {
	case <-c.done:
	default:
		close(c.done)
	}
	return c.Conn.Close()
}

// attackByUpgrade asks for h2c, and if that is granted speaks HTTP/2 with
// whoever it is and returns what a request with a forged token is answered.
func attackByUpgrade(t *testing.T, base string, lines ...string) string {
	t.Helper()
	conn := kit.Must(kit.Connect(base))
	defer conn.Close()
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nX-Key: k\r\n"+strings.Join(lines, "\r\n")+"\r\n\r\n")
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusSwitchingProtocols {
		body, _ := io.ReadAll(res.Body)
		return fmt.Sprintf("%d %s", res.StatusCode, body)
	}
	if protocol := res.Header.Get("Upgrade"); !strings.EqualFold(protocol, "h2c") {
		return "a tunnel for " + protocol
	}
	transport := &http.Transport{Protocols: new(http.Protocols), DialContext: func(context.Context, string, string) (net.Conn, error) {
		return &tunnel{conn, in, make(chan struct{})}, nil
	}}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	req := kit.Must(http.NewRequestWithContext(t.Context(), "GET", "http://x/", nil))
	req.Header.Set(gateway.HeaderToken, "9223372036854775807")
	_, body := kit.Do(t, &http.Client{Transport: transport}, req)
	return "through the tunnel: " + body
}

// A client must not get a connection to the app of its own, on which it could
// send requests with any key and token, past the lock.
func TestTrapNoTunnelAroundTheLock(t *testing.T) {
	app := eagerApp(t)
	yardstick := site.Serve(t, httputil.NewSingleHostReverseProxy(kit.Must(url.Parse(site.Serve(t, app).URL))))
	t.Logf("net/http/httputil.ReverseProxy lets it through: %s", attackByUpgrade(t, yardstick.URL, "Connection: Upgrade", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"))

	const untouched = `200 Connection[] Upgrade[] Http2-Settings[] Http2_settings[] `
	attacks := map[string][]string{
		"h2c":                   {"Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"},
		"settings not named":    {"Connection: Upgrade", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"},
		"h2c, not named":        {"Upgrade: h2c"},
		"upper case":            {"connection: UPGRADE", "upgrade: H2C"},
		"keep-alive beside":     {"Connection: keep-alive, Upgrade", "Upgrade: h2c"},
		"two Connections":       {"Connection: keep-alive", "Connection: Upgrade", "Upgrade: h2c"},
		"HTTP/2.0":              {"Connection: Upgrade", "Upgrade: HTTP/2.0"},
		"TLS":                   {"Connection: Upgrade", "Upgrade: TLS/1.0"},
		"any":                   {"Connection: Upgrade", "Upgrade: echo"},
		"websocket, not named":  {"Upgrade: websocket"},
		"websocket's namesake":  {"Connection: Upgrade", "Upgrade: websocket/h2c"},
		"with a streamed body":  {"Connection: Upgrade", "Upgrade: h2c", "Transfer-Encoding: chunked\r\n\r\n0"},
		"settings alone":        {"HTTP2-Settings: AAMAAABkAAQAAP__"},
		"settings, underscored": {"HTTP2_Settings: AAMAAABkAAQAAP__"},
		"empty":                 {"Connection: Upgrade", "Upgrade:"},
	}
	for _, e := range entrances(t, app, nil) {
		t.Run(e.name, func(t *testing.T) {
			for name, lines := range attacks {
				if e.http2 {
					if got := e.send(t, "GET", "/", []string{"HTTP2-Settings: AAMAAABkAAQAAP__", "HTTP2_Settings: x"}, ""); !strings.Contains(got, `Http2-Settings[] Http2_settings[]`) {
						t.Errorf("over HTTP/2: %s", got)
					}
					break
				}
				if got := attackByUpgrade(t, e.base, lines...); got != untouched {
					t.Errorf("%s: %s", name, got)
				}
			}
		})
	}
}

// What is allowed is tunnelled, and nothing but that is named to the app.
func TestAllowedUpgrades(t *testing.T) {
	tests := []struct {
		lines []string
		want  string
	}{
		{[]string{"Connection: Upgrade", "Upgrade: websocket"}, "websocket"},
		{[]string{"Connection: keep-alive, upgrade", "Upgrade: WebSocket"}, "WebSocket"},
		{[]string{"Connection: Upgrade", "Upgrade: h2c, websocket"}, "websocket"},
		{[]string{"Connection: Upgrade", "Upgrade: h2c", "Upgrade: Echo/1"}, "Echo/1"},
	}
	for _, e := range entrances(t, eagerApp(t), func(rt *router.Config, w *worker.Config) {
		rt.Upgrades = []string{"websocket", "echo/1"}
		w.Upgrades = rt.Upgrades
	}) {
		if e.http2 {
			continue // has no upgrades
		}
		t.Run(e.name, func(t *testing.T) {
			for _, tt := range tests {
				conn := e.dial(t)
				io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nX-Key: k\r\n"+strings.Join(tt.lines, "\r\n")+"\r\n\r\n")
				in := bufio.NewReader(conn)
				res, err := http.ReadResponse(in, nil)
				if err != nil || res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Upgrade") != tt.want {
					t.Fatalf("%q: %v, %v", tt.lines, res, err)
				}
				const said = "no\n request\n"
				io.WriteString(conn, said)
				buf := make([]byte, len(said))
				if _, err := io.ReadFull(in, buf); err != nil || string(buf) != said {
					t.Errorf("%q: %q, %v", tt.lines, buf, err)
				}
				conn.Close()
			}
		})
	}
}

// An app that changes protocols unasked has not answered.
func TestUnaskedSwitchIsABadGateway(t *testing.T) {
	for _, e := range entrances(t, eagerApp(t), nil) {
		t.Run(e.name, func(t *testing.T) {
			answers := []string{e.send(t, "GET", "/?unasked=1", nil, "")}
			if !e.http2 {
				answers = append(answers, e.send(t, "POST", "/?unasked=1", []string{"Transfer-Encoding: chunked"}, "0\r\n\r\n"))
			}
			for _, got := range answers {
				if !strings.HasPrefix(strings.TrimPrefix(got, ":status: "), "502") {
					t.Errorf("%s", got)
				}
			}
		})
	}
}

func TestUpgradesThatCannotBeAllowed(t *testing.T) {
	for _, protocol := range []string{"", "h2c", "H2C", "h2", "HTTP/2.0", "tls/1.0", "a b", "a/", "a,b"} {
		cfg := router.Config{Members: hub.Of(), Keys: kit.KeySources(t, "host"), Upgrades: []string{protocol}}
		if _, err := router.New(cfg); err == nil {
			t.Errorf("%q may be allowed", protocol)
		}
	}
}

// The server for requests without keys has no worker before it: the router alone keeps other upgrades from it.
func TestTrapUpgradesOfRequestsWithoutKeys(t *testing.T) {
	seen := make(chan http.Header, 1)
	server := site.Serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header }))
	table := routes.ForKeys(kit.KeySources(t, "header:X-Order"), kit.Must(routes.ParseWithoutKey(server.URL)))
	for _, e := range routerEntrances(t, "upstream", router.Config{Members: hub.Of(), Routes: table}) {
		if e.http2 {
			continue // has no upgrades
		}
		e.send(t, "GET", "/", []string{"Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"}, "")
		if h := <-seen; h["Upgrade"] != nil || h["Http2-Settings"] != nil {
			t.Errorf("%s: %v", e.name, h)
		}
	}
}
