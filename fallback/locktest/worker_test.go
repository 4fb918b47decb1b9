package locktest

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"

	"github.com/keyway-go/keyway/fallback/fence"
	"github.com/keyway-go/keyway/fallback/lock"
	"github.com/keyway-go/keyway/localmutex/locking"
)

const (
	ttl     = 400 * time.Millisecond
	callers = 2 // per worker
)

// What a line of a worker's file is about. Its fields are the kind, the
// caller, the key, the token, and the times before and after.
const (
	acquired = "acquired"
	alive    = "alive"    // the context was found alive
	released = "released" // Unlock said so
	notOwner = "notowner" // Unlock said so
	unknown  = "unknown"  // Unlock said so
	writing  = "writing"  // a write begins; both times are the same
	written  = "written"
	refused  = "refused"
)

// worker is the main function of a worker process. It runs until it is killed
// or told to end on standard input.
func worker() error {
	file, err := os.OpenFile(os.Getenv("LOCKTEST_FILE"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	keys, err := strconv.Atoi(os.Getenv("LOCKTEST_KEYS"))
	if err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: os.Getenv("LOCKTEST_REDIS"), ContextTimeoutEnabled: true})
	defer client.Close()
	if os.Getenv("LOCKTEST_BROKEN") != "" {
		hook, err := breakRelease()
		if err != nil {
			return err
		}
		client.AddHook(hook)
	}
	locker, err := lock.New(client, lock.Config{
		TTL: ttl, MaxWait: 2 * time.Second, FIFO: os.Getenv("LOCKTEST_FIFO") != "",
	})
	if err != nil {
		return err
	}
	defer locker.Close()

	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for i := range callers {
		w := caller{name: fmt.Sprintf("%s/%d", os.Getenv("LOCKTEST_NAME"), i), file: file, client: client, locker: locker}
		running.Go(func() {
			for ctx.Err() == nil {
				w.run(ctx, fmt.Sprint("key", rand.N(keys)))
			}
		})
	}
	_, _ = os.Stdin.Read(make([]byte, 1)) // until it is closed
	cancel()
	running.Wait()
	return nil
}

// caller takes one lock after the other.
type caller struct {
	name   string
	file   *os.File
	client redis.UniversalClient
	locker *lock.Locker
}

// note writes one line. A line is on its way to the file before what follows
// it happens, so a kill loses nothing that mattered.
func (w caller) note(what, key string, token, from, to int64) {
	if _, err := fmt.Fprintln(w.file, what, w.name, key, token, from, to); err != nil {
		panic(err)
	}
}

func (w caller) run(ctx context.Context, key string) {
	from := now()
	k, err := w.locker.Lock(ctx, key)
	if err != nil {
		return
	}
	token := k.Token()
	w.note(acquired, key, token, from, now())
	for range 1 + rand.N(3) {
		from := now()
		if k.Context().Err() == nil {
			w.note(alive, key, token, from, now())
		}
		w.write(key, token)
		<-time.After(rand.N(4 * time.Millisecond))
	}
	from = now()
	err = k.Unlock(context.Background())
	what := unknown
	switch {
	case err == nil:
		what = released
	case errors.Is(err, locking.ErrNotOwner):
		what = notOwner
	}
	w.note(what, key, token, from, now())
}

// write writes behind the fence, whether or not the lock still is the
// caller's: that is what the fence is for.
func (w caller) write(key string, token int64) {
	from := now()
	w.note(writing, key, token, from, from)
	_, err := fence.Do(context.Background(), w.client, token, "SET", "resource:"+key, token)
	switch {
	case err == nil:
		w.note(written, key, token, from, now())
	case errors.Is(err, fence.ErrStale):
		w.note(refused, key, token, from, now())
	}
}

// now is a clock that all processes of a machine share and nobody sets.
func now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return t.Nano()
}

// brokenRelease runs other scripts in place of those that release: they
// delete the lock whoever holds it.
type brokenRelease map[string]string // by SHA-1

func breakRelease() (brokenRelease, error) {
	b := brokenRelease{}
	for file, script := range map[string]string{
		"../lock/lua/give.lua":    "redis.call('DEL', KEYS[1]) return {1, redis.call('PUBLISH', KEYS[1], '')}",
		"../lock/lua/release.lua": "redis.call('DEL', KEYS[2]) return {1, redis.call('PUBLISH', KEYS[2], '')}",
	} {
		source, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		sum := sha1.Sum(source)
		b[hex.EncodeToString(sum[:])] = script
	}
	return b, nil
}

func (b brokenRelease) change(cmd redis.Cmder) {
	args := cmd.Args()
	if !strings.HasPrefix(cmd.Name(), "eval") {
		return
	}
	if script, ok := b[args[1].(string)]; ok {
		args[0], args[1] = "eval", script
	}
}

func (b brokenRelease) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (b brokenRelease) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		b.change(cmd)
		return next(ctx, cmd)
	}
}

func (b brokenRelease) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			b.change(cmd)
		}
		return next(ctx, cmds)
	}
}
