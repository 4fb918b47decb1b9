//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/keyway-go/keyway/internal/hopbench/load"
	"github.com/keyway-go/keyway/internal/hopbench/origin"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/localmutex"
)

// How an app makes sure that a key is worked on once at a time.
const (
	lockRedis   = "redis"   // a plain lock in Redis
	lockRedsync = "redsync" // redsync's, with its own delays
	lockLocal   = "local"   // a mutex in the process, which is enough if all requests of a key come here
	lockKeyway  = "keyway"  // none: it is a Keyway worker
	lockLink    = "link"    // none, and without net/http
)

// waitPath asks for work in the critical section.
const waitPath = "/wait"

// app is the program under measurement: a counter per key.
type app struct {
	lock     string
	redis    string
	poll     time.Duration
	wait     time.Duration
	counters counters
}

func runApp(ctx context.Context, args []string, stdout, _ io.Writer) error {
	var a app
	var cfg origin.MemberConfig
	flags := flag.NewFlagSet("app", flag.ContinueOnError)
	flags.StringVar(&a.lock, "lock", "", "kind of lock")
	flags.StringVar(&a.redis, "redis", "", "host:port")
	flags.DurationVar(&a.poll, "poll", 0, "mean time between two attempts to get a plain lock")
	flags.DurationVar(&a.wait, "wait", 0, "work in the critical section, at "+waitPath)
	file := flags.String("counters", "", "path")
	keys := flags.Int("keys", 0, "number of keys")
	flags.StringVar(&cfg.Cluster, "cluster", "", "name of the cluster")
	flags.StringVar(&cfg.Name, "name", "", "name of the worker")
	flags.StringVar(&cfg.Join, "join", "", "gossip address of the router")
	err := flags.Parse(args)
	if err != nil {
		return err
	}
	if a.counters, err = openCounters(*file, *keys); err != nil {
		return err
	}
	switch a.lock {
	case lockKeyway, lockLink:
		cfg.Redis = "redis://" + a.redis
		return a.work(ctx, cfg, stdout)
	}
	locker, err := a.locker()
	if err != nil {
		return err
	}
	return serve(ctx, stdout, &locked{&a, locker})
}

// work serves as a Keyway worker.
func (a *app) work(ctx context.Context, cfg origin.MemberConfig, stdout io.Writer) error {
	listeners, addrs, err := listen(1)
	if err != nil {
		return err
	}
	cfg.Addr = addrs[0]
	member, err := origin.Join(ctx, cfg)
	if err != nil {
		return err
	}
	defer member.Leave()
	failed := make(chan error, 1)
	go func() {
		if a.lock == lockLink {
			failed <- member.ServeLink(listeners[0], a.serveLink)
			return
		}
		failed <- member.NewServer(member.Handler(a)).Serve(listeners[0])
	}()
	if err := member.Await(ctx); err != nil {
		return err
	}
	fmt.Fprintln(stdout, "ready", addrs[0])
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// result runs the critical section and returns the answer.
func (a *app) result(key, path string) ([]byte, bool) {
	var work time.Duration
	if path == waitPath {
		work = a.wait
	}
	n, ok := a.counters.critical(key, work)
	if !ok {
		return nil, false
	}
	b := make([]byte, 0, 64)
	b = append(append(append(b, `{"key":"`...), key...), `","count":`...)
	return append(strconv.AppendInt(b, n, 10), "}\n"...), true
}

// ServeHTTP is the handler of all apps; what calls it holds the key.
func (a *app) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, ok := a.result(r.Header.Get(load.HeaderKey), r.URL.Path)
	if !ok {
		http.Error(w, "there is no such key", http.StatusNotFound)
		return
	}
	h := w.Header()
	h["Content-Type"] = []string{"application/json"}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	_, _ = w.Write(body) // fails if the client has gone
}

// serveLink is ServeHTTP without net/http.
func (a *app) serveLink(w *link.ResponseWriter, r *link.ServerRequest) {
	body, ok := a.result(r.Key, r.Target)
	if !ok {
		_ = w.WriteHead(http.StatusNotFound, 0, nil)
		return
	}
	var fields [48]byte
	_ = w.WriteHead(http.StatusOK, int64(len(body)), link.AppendField(fields[:0], "Content-Type", "application/json"))
	_, _ = w.Write(body)
}

// locker locks a key and returns how to unlock it.
type locker func(ctx context.Context, key string) (unlock func(), err error)

// locked runs an app's handler with the key locked.
type locked struct {
	app  *app
	lock locker
}

func (l *locked) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	unlock, err := l.lock(r.Context(), r.Header.Get(load.HeaderKey))
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer unlock()
	l.app.ServeHTTP(w, r)
}

func (a *app) locker() (locker, error) {
	switch a.lock {
	case lockLocal:
		mutex := new(localmutex.Mutex)
		return func(ctx context.Context, key string) (func(), error) {
			if err := mutex.Lock(ctx, key); err != nil {
				return nil, err
			}
			return func() { mutex.Unlock(key) }, nil
		}, nil
	case lockRedis:
		return (&redisLock{client: a.client(), poll: a.poll}).lock, nil
	case lockRedsync:
		sync := redsync.New(goredis.NewPool(a.client()))
		return func(ctx context.Context, key string) (func(), error) {
			m := sync.NewMutex("lock:"+key, redsync.WithExpiry(lockTTL), redsync.WithTries(1000))
			if err := m.LockContext(ctx); err != nil {
				return nil, err
			}
			return func() { _, _ = m.Unlock() }, nil // an expired lock shows in the counters
		}, nil
	}
	return nil, fmt.Errorf("app: there is no lock %q", a.lock)
}

func (a *app) client() *redis.Client { return redis.NewClient(&redis.Options{Addr: a.redis}) }

// lockTTL is far longer than any critical section here.
const lockTTL = 10 * time.Second

// redisLock is the lock that teams write: SET NX PX, polling with jitter, and
// a script that deletes the key if it is still one's own.
type redisLock struct {
	client *redis.Client
	poll   time.Duration
}

var release = redis.NewScript(`if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`)

func (l *redisLock) lock(ctx context.Context, key string) (func(), error) {
	name, owner := "lock:"+key, rand.Text()
	for {
		ok, err := l.client.SetNX(ctx, name, owner, lockTTL).Result()
		if err != nil {
			return nil, err
		}
		if ok {
			return func() { _ = release.Run(context.WithoutCancel(ctx), l.client, []string{name}, owner).Err() }, nil
		}
		select {
		case <-time.After(l.poll/2 + mathrand.N(l.poll)):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
