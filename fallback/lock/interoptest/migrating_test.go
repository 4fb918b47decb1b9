package interoptest

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/fallback/lock"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/redistest"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// The bodies of these functions are the Go of docs/migrating.md.

func byRedsync(ctx context.Context, rs *redsync.Redsync) error {
	mutex := rs.NewMutex("order:42", redsync.WithExpiry(30*time.Second), redsync.WithTries(100))
	if err := mutex.LockContext(ctx); err != nil {
		return err
	}
	defer mutex.UnlockContext(context.WithoutCancel(ctx))
	return ship(ctx, "order:42", 0)
}

func byRedislock(ctx context.Context, locks *redislock.Client) error {
	held, err := locks.Obtain(ctx, "order:42", 30*time.Second, &redislock.Options{
		RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond),
	})
	if err != nil {
		return err
	}
	defer held.Release(context.WithoutCancel(ctx))
	return ship(ctx, "order:42", 0)
}

func byKeywaysLock(ctx context.Context, locker *lock.Locker) error {
	held, err := locker.Lock(ctx, "order:42", locking.TTL(30*time.Second), locking.Wait(10*time.Second))
	if err != nil {
		return err
	}
	defer held.Unlock(context.WithoutCancel(ctx))
	return ship(held.Context(), "order:42", held.Token())
}

func routedWithTheLock(ctx context.Context, node *keyway.Node, locker *lock.Locker) error {
	return node.Do(ctx, "order:42", func(x keyway.Execution) error {
		held, err := locker.Lock(x.Context(), x.Key(), locking.TTL(30*time.Second), locking.Wait(10*time.Second))
		if err != nil {
			return err
		}
		defer held.Unlock(context.WithoutCancel(x.Context()))
		return ship(held.Context(), x.Key(), held.Token())
	})
}

func routed(ctx context.Context, node *keyway.Node) error {
	return node.Do(ctx, "order:42", func(x keyway.Execution) error {
		return ship(x.Context(), x.Key(), x.Token())
	})
}

var tokens []int64

func ship(ctx context.Context, _ string, token int64) error {
	if token > 0 {
		tokens = append(tokens, token)
	}
	return ctx.Err()
}

// Each step does the work, and the tokens of a resource rise from one to the next.
func TestStepsOfMigration(t *testing.T) {
	client := open(t, redistest.Start(t).Addr())
	locker := locker(t, client, lock.Config{NoPrefix: true})
	node, err := keyway.Start(t.Context(), keyway.Config{Join: []string{kit.FreeAddr(t)}, NewCluster: true})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	tokens = nil
	for i, step := range []func() error{
		func() error { return byRedsync(t.Context(), redsync.New(goredis.NewPool(client))) },
		func() error { return byRedislock(t.Context(), redislock.New(client)) },
		func() error { return byKeywaysLock(t.Context(), locker) },
		func() error { return routedWithTheLock(t.Context(), node, locker) },
		func() error { return routed(t.Context(), node) },
	} {
		if err := step(); err != nil {
			t.Fatalf("step %d: %v", i+1, err)
		}
	}
	if len(tokens) != 3 || tokens[0] >= tokens[1] || tokens[1] >= tokens[2] {
		t.Errorf("tokens %d, want three that rise", tokens)
	}
}

// What docs/migrating.md writes in Go is compiled and run here.
func TestGoOfTheDocument(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/migrating.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("migrating_test.go")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(doc), "```go\n")[1:]
	if len(parts) != 5 {
		t.Errorf("%d blocks of Go, want 5", len(parts))
	}
	for _, part := range parts {
		block, _, _ := strings.Cut(part, "```")
		if body := "{\n\t" + strings.ReplaceAll(strings.TrimSuffix(block, "\n"), "\n", "\n\t") + "\n}\n"; !strings.Contains(string(source), body) {
			t.Errorf("no function has this body:\n%s", block)
		}
	}
}
