package fallback

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/keyway-go/keyway/fallback/internal/query"
)

// errURL means that a Redis URL is not usable. The error that wraps it names
// the part that is wrong and never shows a password.
var errURL = errors.New("fallback: bad redis URL")

// NewClient returns a client for a URL, whose options each of opts may change. It
// does no network I/O.
//
//	redis://[user:password@]host[:port][/db]
//	rediss://…                                     TLS
//	unix://[user:password@]/path/to.sock[?db=n]
//	redis-sentinel://[user:password@]host[:port][/db]?master=name[&addr=host:port…]
//	redis+cluster://[user:password@]host[:port][?addr=host:port…]
//	rediss-sentinel://…, rediss+cluster://…        TLS
//
// The default port is 6379 (of a Sentinel 26379), and addr names further
// Cluster nodes, or the other Sentinels: name all of them, since the client
// takes the primary that most of them name. The user and password are the data
// servers'; those of Sentinels are in the query.
//
// The query may also carry:
//
//	dial_timeout, read_timeout, write_timeout   Go durations; default 2s each
//	pool_size                                   connections; default 10 per CPU (in a Cluster 5 per node and CPU)
//	sentinel_username, sentinel_password        of the Sentinels
//	ca, cert, key                               PEM files for TLS; cert and key are read for each connection
//	server_name, skip_verify=true               for TLS
//
// The earlier of a context's deadline and the client's timeouts bounds each call. The client itself
// retries a failed command up to twice, 8 to 250 ms apart, even if only its reply was lost. All
// commands sent through it must therefore be idempotent.
//
// go-redis has one log for the whole process and writes it to stderr. The first
// call turns that off, unless [LogRedis] has been called: errors of calls say the
// same. A program that wants go-redis' log calls LogRedis first, or
// redis.SetLogger after.
func NewClient(rawURL string, opts ...func(*redis.UniversalOptions)) (redis.UniversalClient, error) {
	o, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	silence.Do(func() { redis.SetLogger(new(logging.VoidLogger)) })
	for _, opt := range opts {
		opt(o)
	}
	if o.MasterName != "" {
		return newSentinelClient(o), nil
	}
	if o.IsClusterMode {
		cluster := o.Cluster()
		cluster.ClusterStateReloadInterval = slotsReload
		return redis.NewClusterClient(cluster), nil
	}
	return redis.NewUniversalClient(o), nil
}

// slotsReload is how often a client of a Cluster that is in use asks who has which slots: a dead master, which it would
// dial otherwise, answers no MOVED.
const slotsReload = time.Second

// silence turns go-redis' log off, unless a program has said where it goes.
var silence sync.Once

// LogRedis sends what go-redis logs by itself, such as lost connections, to
// a logger instead of stderr. It is for main: it changes the whole process.
func LogRedis(l *slog.Logger, level slog.Level) {
	silence.Do(func() {})
	redis.SetLogger(redisLog{l, level})
}

type redisLog struct {
	logger *slog.Logger
	level  slog.Level
}

// Printf logs a message of go-redis.
func (r redisLog) Printf(ctx context.Context, format string, v ...any) {
	if r.logger.Enabled(ctx, r.level) {
		r.logger.Log(ctx, r.level, "redis: "+fmt.Sprintf(format, v...))
	}
}

// Schemes of URLs; rediss in place of redis stands for TLS.
const sentinelScheme, clusterScheme, unixScheme = "redis-sentinel", "redis+cluster", "unix"

func badURL(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errURL, fmt.Sprintf(format, args...))
}

func parseURL(rawURL string) (*redis.UniversalOptions, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		// The error of url.Parse quotes the URL, and with it the password.
		if e, ok := errors.AsType[*url.Error](err); ok && !strings.Contains(rawURL, "@") {
			return nil, badURL("%v; want one such as redis://host:6379", e.Err)
		}
		return nil, badURL("it does not parse (is there an unescaped character in the password, host or port?)")
	}
	scheme := strings.Replace(u.Scheme, "rediss", "redis", 1)
	if !slices.Contains([]string{"redis", sentinelScheme, clusterScheme, unixScheme}, scheme) {
		return nil, badURL("scheme %q; want redis://host:6379, or one of redis, rediss, unix, redis-sentinel, rediss-sentinel, redis+cluster or rediss+cluster", u.Scheme)
	}
	o := clientDefaults()
	if scheme == clusterScheme {
		o.IsClusterMode = true
		o.MaxRetries = -1 // it has redirects, up to three, which are retries
	}
	o.Username = u.User.Username()
	o.Password, _ = u.User.Password()

	q, err := query.Parse(u.RawQuery)
	if err != nil {
		return nil, badURL("%v", err)
	}
	if err := parseAddr(o, u, scheme, q); err != nil {
		return nil, err
	}
	o.DialTimeout = q.Duration("dial_timeout", o.DialTimeout)
	o.ReadTimeout = q.Duration("read_timeout", o.ReadTimeout)
	o.WriteTimeout = q.Duration("write_timeout", o.WriteTimeout)
	o.PoolSize = q.Number("pool_size")
	if scheme != u.Scheme {
		o.TLSConfig = q.TLS()
	}
	if err := q.Finish(); err != nil {
		return nil, badURL("%v", err)
	}
	return o, nil
}

// clientDefaults bounds everything: go-redis' own defaults add up to half a
// minute for a server that does not answer.
func clientDefaults() *redis.UniversalOptions {
	return &redis.UniversalOptions{
		ClientName:            "keyway",
		ContextTimeoutEnabled: true,
		DialTimeout:           2 * time.Second,
		ReadTimeout:           2 * time.Second,
		WriteTimeout:          2 * time.Second,
		PoolTimeout:           3 * time.Second,
		DialerRetries:         1,
		MaxRetries:            2,
		MinRetryBackoff:       8 * time.Millisecond,
		MaxRetryBackoff:       250 * time.Millisecond,
		PipelinePoolSize:      -1,
		DisableIdentity:       true,
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},
	}
}

func parseAddr(o *redis.UniversalOptions, u *url.URL, scheme string, q *query.Query) error {
	path := strings.Trim(u.Path, "/")
	switch {
	case scheme == unixScheme:
		if u.Host != "" || path == "" {
			return badURL("unix wants an absolute path: unix:///run/redis.sock")
		}
		o.Addrs = []string{u.Path}
		o.DB = q.Number("db")
		return nil
	case scheme == clusterScheme && path != "":
		return badURL("path %q: a cluster has no database numbers", path)
	case path != "":
		db, err := strconv.Atoi(path)
		if err != nil || db < 0 {
			return badURL("path %q is not a database number", path)
		}
		o.DB = db
	}
	port := "6379"
	if scheme == sentinelScheme {
		port = "26379"
		o.MasterName = q.Text("master")
		if o.MasterName == "" {
			return badURL("a sentinel URL wants ?master=name")
		}
		o.SentinelUsername = q.Text("sentinel_username")
		o.SentinelPassword = q.Text("sentinel_password")
	}
	if u.Port() != "" {
		port = u.Port()
	}
	if u.Hostname() == "" {
		return badURL("host is missing")
	}
	o.Addrs = []string{net.JoinHostPort(u.Hostname(), port)}
	if scheme == "redis" {
		return nil
	}
	for _, addr := range q.All("addr") {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return badURL("addr %q is not host:port", addr)
		}
		o.Addrs = append(o.Addrs, addr)
	}
	return nil
}
