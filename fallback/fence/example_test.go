package fence_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/keyway-go/keyway/fallback/fence"
	"github.com/keyway-go/keyway/fallback/lock"
	"github.com/keyway-go/keyway/fallback/store"
)

// A holder that was stopped until its lock was another's writes too late.
func ExampleDo() {
	server, err := store.StartEmbedded("127.0.0.1:0", "")
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	ctx := context.Background()
	lock := func() *lock.Lock { // as a process of its own would
		locker, err := lock.New(client, lock.Config{})
		if err != nil {
			log.Fatal(err)
		}
		held, err := locker.Lock(ctx, "account:1")
		if err != nil {
			log.Fatal(err)
		}
		return held
	}

	stopped := lock()
	client.FlushAll(ctx) // Redis forgets the lock; stopped does not know
	next := lock()

	_, err = fence.Do(ctx, client, next.Token(), "SET", "account:1", "new")
	fmt.Println("the later holder:", err)
	_, err = fence.Do(ctx, client, stopped.Token(), "SET", "account:1", "old")
	fmt.Println("the earlier holder is refused:", errors.Is(err, fence.ErrStale))
	fmt.Println(client.Get(ctx, "account:1").Val())
	// Output:
	// the later holder: <nil>
	// the earlier holder is refused: true
	// new
}
