package gateway

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"github.com/keyway-go/keyway/internal/hop1"
)

// Sidecar returns a handler that sends each request on to the app at target
// (http://host:port, or unix:///path/of/socket) with its key held until the app
// has answered in full or its connection is known to be dead, even when the
// client has gone away. The app should stop working on a request whose
// connection closes: that is how it learns that the ownership was lost.
func (w *Worker) Sidecar(target *url.URL) (http.Handler, error) {
	s := &sidecar{app: target.String(), root: strings.Trim(target.Path, "/") == "" && target.RawQuery == ""}
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}
	network, addr := "tcp", target.Host
	switch {
	case target.Scheme == "unix" && target.Path != "":
		network, addr = "unix", target.Path
		target = &url.URL{Scheme: "http", Host: "app"}
		s.root = true
	case target.Scheme == "http" && target.Host != "":
		if target.Port() == "" {
			addr = net.JoinHostPort(target.Hostname(), "80")
		}
	default:
		return nil, fmt.Errorf("gateway: the app's URL is %q, want http://host:port or unix:///path", target)
	}
	dial := func(ctx context.Context) (net.Conn, error) { return dialer.DialContext(ctx, network, addr) }
	s.pool = hop1.Pool{Dial: dial, Conns: maxAppConns, Idle: appIdle}
	proxy := &httputil.ReverseProxy{
		Transport: &http.Transport{
			DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
			MaxIdleConns:           1024,
			MaxIdleConnsPerHost:    1024,
			IdleConnTimeout:        appIdle,
			MaxResponseHeaderBytes: 1 << 20,
			DisableCompression:     true,
		},
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.SetURL(target)
			pr.Out.Host = pr.In.Host
			for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
				if v, ok := pr.In.Header[name]; ok {
					pr.Out.Header[name] = v
				}
			}
		},
		ErrorHandler: s.noAnswer,
	}
	s.keyedHandler = keyedHandler{worker: w, next: proxy, detach: true}
	return s, nil
}

// Connections to an app.
const (
	maxAppConns = 4096            // for what comes over the link; more waits
	appIdle     = 2 * time.Second // less than app servers keep idle ones, so that no request meets one that closes
)
