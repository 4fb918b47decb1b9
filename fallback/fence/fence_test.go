package fence

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/keyway-go/keyway/internal/test/redistest"
)

func TestOlderTokensAreRefused(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	for _, step := range []struct {
		token int64
		value string
		err   error
	}{
		{5, "a", nil}, {5, "b", nil}, {4, "c", ErrStale}, {9007199254740990, "d", nil}, {9007199254740989, "e", ErrStale},
		{9007199254740990, "f", nil}, {-1, "g", errToken}, {math.MaxInt64, "h", errToken}, {0, "i", ErrStale},
	} {
		before := client.Get(t.Context(), "key").Val()
		_, err := Do(t.Context(), client, step.token, "SET", "key", step.value)
		if !errors.Is(err, step.err) {
			t.Fatalf("token %d: error is %v, want %v", step.token, err, step.err)
		}
		want := step.value
		if step.err != nil {
			want = before
		}
		if got := client.Get(t.Context(), "key").Val(); got != want {
			t.Fatalf("after token %d the value is %q, want %q", step.token, got, want)
		}
	}
}

// A later token for one key refuses nothing of another one, however alike they are.
func TestTrapKeysHaveTokensOfTheirOwn(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	token := int64(20)
	for _, key := range []string{"b", "{b}", "{{b}}", "b}", "{b}}", "b{", "{b", "{}", "}", "{b{}}"} {
		token--
		if _, err := Do(t.Context(), client, token, "SET", key, token); err != nil {
			t.Errorf("%q: %v", key, err)
		}
	}
}

func TestRepliesAreTheCommands(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	if n, err := Do(t.Context(), client, 1, "INCRBY", "{a}n", 7); n != int64(7) || err != nil {
		t.Errorf("INCRBY is %v, %v", n, err)
	}
	if _, err := Do(t.Context(), client, 1, "GET", "none"); !errors.Is(err, redis.Nil) {
		t.Errorf("GET of nothing is %v", err)
	}
	if _, err := Do(t.Context(), client, 1, "LPUSH", "{a}n", "x"); err == nil {
		t.Error("LPUSH to a number has no error")
	}
}

func TestLastWriteHasTheHighestToken(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	var running sync.WaitGroup
	for token := range int64(50) {
		running.Go(func() {
			if _, err := Do(context.Background(), client, token, "SET", "key", token); err != nil && !errors.Is(err, ErrStale) {
				t.Error(err)
			}
		})
	}
	running.Wait()
	if got := client.Get(t.Context(), "key").Val(); got != "49" {
		t.Errorf("the last write is %s", got)
	}
}

func TestFenceIsInTheKeysSlot(t *testing.T) {
	for key, want := range map[string]string{
		"a": "fence{a}", "x{a}y": "fence:x{a}y", "x{}y": "fence{x{}y}", "x{a": "fence{x{a}", "}{": "fence{}{}", "{a}": "fence:{a}",
	} {
		if got := fenceKey(key); got != want {
			t.Errorf("the fence of %q is %q, want %q", key, got, want)
		}
	}
}
