package etcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/keyway-go/keyway/fallback/internal/query"
)

// errURL means that the URL of an etcd is not usable. The error that wraps it never shows a password.
var errURL = errors.New("etcd: bad URL")

func badURL(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errURL, fmt.Sprintf(format, args...))
}

const (
	dialTimeout      = 2 * time.Second
	keepAliveTime    = 10 * time.Second // gRPC allows no less
	keepAliveTimeout = 2 * time.Second  // also without an acknowledgement of what was sent
)

// dialOptions make a client try again soon, also after a long absence of etcd, and let a request that no
// member of etcd can take return why.
func dialOptions() []grpc.DialOption {
	again := backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}
	failFast := func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		return invoke(ctx, method, request, reply, conn, append(opts, grpc.WaitForReady(false))...)
	}
	return []grpc.DialOption{
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: again, MinConnectTimeout: dialTimeout}),
		grpc.WithChainUnaryInterceptor(failFast),
	}
}

// Handles reports whether a URL is meant for [New].
func Handles(url string) bool {
	scheme, _, ok := strings.Cut(url, ":")
	return ok && (scheme == "etcd" || scheme == "etcds")
}

// parseURL returns the configuration of a client. url.Parse takes one host alone, so that the others are
// cut off first.
func parseURL(raw string) (c clientv3.Config, err error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok || !Handles(raw) {
		return c, badURL("it does not begin with etcd:// or etcds://")
	}
	user, hosts := "", rest
	if i := strings.LastIndex(rest, "@"); i >= 0 {
		user, hosts = rest[:i+1], rest[i+1:]
	}
	hosts, parameters, _ := strings.Cut(hosts, "?")
	u, err := url.Parse(scheme + "://" + user + "host")
	if err != nil {
		return c, badURL("user and password do not parse (is there an unescaped character?)")
	}
	c = clientv3.Config{
		DialTimeout: dialTimeout, DialKeepAliveTime: keepAliveTime, DialKeepAliveTimeout: keepAliveTimeout,
		Username: u.User.Username(), Logger: zap.NewNop(), MaxUnaryRetries: 2, DialOptions: dialOptions(),
	}
	c.Password, _ = u.User.Password()
	transport := map[string]string{"etcd": "http://", "etcds": "https://"}[scheme]
	for host := range strings.SplitSeq(strings.TrimSuffix(hosts, "/"), ",") {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host += ":2379"
		}
		if name, port, err := net.SplitHostPort(host); err != nil || name == "" || port == "" || strings.Contains(host, "/") {
			return c, badURL("%q is not host:port", host)
		}
		c.Endpoints = append(c.Endpoints, transport+host)
	}
	q, err := query.Parse(parameters)
	if err != nil {
		return c, badURL("%v", err)
	}
	if scheme == "etcds" {
		c.TLS = q.TLS()
	}
	if err := q.Finish(); err != nil {
		return c, badURL("%v", err)
	}
	return c, nil
}
