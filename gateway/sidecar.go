package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"
)

// Sidecar returns a handler that sends each request on to the app at target
// (http://host:port, or unix:///path/of/socket) with its key held until the app
// has answered in full or its connection is known to be dead, even when the
// client has gone away. The app should stop working on a request whose
// connection closes: that is how it learns that the ownership was lost.
func (w *Worker) Sidecar(target *url.URL) (http.Handler, error) {
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}
	dial := dialer.DialContext
	switch {
	case target.Scheme == "unix" && target.Path != "":
		path := target.Path
		dial = func(ctx context.Context, _, _ string) (net.Conn, error) { return dialer.DialContext(ctx, "unix", path) }
		target = &url.URL{Scheme: "http", Host: "app"}
	case target.Scheme == "http" && target.Host != "":
	default:
		return nil, fmt.Errorf("gateway: the app's URL is %q, want http://host:port or unix:///path", target)
	}
	proxy := &httputil.ReverseProxy{
		Transport: &http.Transport{
			DialContext:            dial,
			MaxIdleConns:           1024,
			MaxIdleConnsPerHost:    1024,
			IdleConnTimeout:        30 * time.Second,
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
		ErrorHandler: func(rw http.ResponseWriter, r *http.Request, err error) {
			if cause := context.Cause(r.Context()); errors.Is(cause, ErrOwnershipLost) {
				err = cause
			}
			w.cfg.Logger.Warn("the app did not answer", "app", target.String(), "method", r.Method, "path", r.URL.Path, "err", err)
			http.Error(rw, fmt.Sprintf("keyway: the app at %s did not answer: %v", target, err), http.StatusBadGateway)
		},
	}
	return &keyedHandler{worker: w, next: proxy, detach: true}, nil
}
