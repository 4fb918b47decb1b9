package keyway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// alone is a configuration for examples: of a node that is a new cluster of its
// own. The zero Config does where there is a router.
func alone() keyway.Config {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	return keyway.Config{Join: []string{l.Addr().String()}, NewCluster: true}
}

func ship(_ context.Context, order string, token int64) error {
	fmt.Println("shipping", order, token > 0)
	return nil
}

// From nothing to a function that runs with its key held.
func ExampleStart() {
	run := func(ctx context.Context, config keyway.Config) error {
		node, err := keyway.Start(ctx, config)
		if err != nil {
			return err
		}
		defer node.Close() // waits for what runs, for 30 s at most, and logs what does not end
		err = node.Do(ctx, "order-42", func(x keyway.Execution) error {
			return ship(x.Context(), x.Key(), x.Token()) // nobody else works on order-42
		})
		return err
	}
	fmt.Println(run(context.Background(), alone()))
	// Output:
	// shipping order-42 true
	// <nil>
}

// Requests are served one at a time per key; another node's, or this one's, are
// sent to whichever node owns the key.
func ExampleNode_Serve() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	node, err := keyway.Start(ctx, alone())
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	app := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, _ := gateway.KeyFromHeader(r.Header)
		fmt.Fprintf(w, "%s of %s, one at a time", r.Method, key)
	})
	served := make(chan error)
	go func() { served <- node.Serve(ctx, app) }()

	client := http.Client{Transport: node}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://orders/ship", nil)
	if err != nil {
		log.Fatal(err)
	}
	req.Header.Set(gateway.HeaderKey, "order-42")
	res, err := client.Do(req) // to the owner, while there is none it waits
	if err != nil {
		log.Fatal(err)
	}
	body, _ := io.ReadAll(res.Body)
	res.Body.Close()
	fmt.Println(res.StatusCode, string(body))

	cancel()
	fmt.Println(<-served)
	// Output:
	// 200 POST of order-42, one at a time
	// <nil>
}

// A mutex in the shape of those of Redis libraries excludes executions of its key as well.
func ExampleNode_NewMutex() {
	ctx := context.Background()
	node, err := keyway.Start(ctx, alone())
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	mutex := node.NewMutex("order:42", locking.Wait(10*time.Second))
	if err := mutex.Lock(ctx); err != nil {
		log.Fatal(err)
	}
	_ = ship(mutex.Context(), mutex.Key(), mutex.Token()) // the context ends before another can have the lock
	err = node.TryDo(ctx, "order:42", func(keyway.Execution) error { return nil })
	fmt.Println(errors.Is(err, keyway.ErrLocked))
	fmt.Println(mutex.Unlock(ctx))
	// Output:
	// shipping order:42 true
	// true
	// <nil>
}

// Code that locks by the interface takes locks of Redis, or those of a node: one line changes.
func ExampleNode_Lock() {
	ctx := context.Background()
	node, err := keyway.Start(ctx, alone())
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	locker := locking.Of(node) // it was locking.Of(redisLocker)

	held, err := locker.Lock(ctx, "order:42", locking.TTL(30*time.Second), locking.Wait(10*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	_ = ship(held.Context(), "order:42", held.Token())
	_, err = locker.TryLock(ctx, "order:42")
	fmt.Println(errors.Is(err, locking.ErrLocked))
	fmt.Println(held.Unlock(ctx))
	// Output:
	// shipping order:42 true
	// true
	// <nil>
}

// Several keys are locked at once, or none, for work that is no function.
func ExampleNode_LockAll() {
	ctx := context.Background()
	node, err := keyway.Start(ctx, alone())
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	locks, err := node.LockAll(ctx, []string{"bob", "alice"}, locking.TTL(time.Minute), locking.Wait(10*time.Second), locking.Label("transfer 7"))
	if err != nil {
		log.Fatal(err)
	}
	for _, key := range locks.Keys() {
		_ = ship(locks.Context(), key, locks.TokenOf(key)) // the context ends when any of the locks is lost
	}
	fmt.Println(locks.Unlock(ctx))
	// Output:
	// shipping alice true
	// shipping bob true
	// <nil>
}

// Two keys are held at once, wherever they are owned.
func ExampleNode_DoAll() {
	ctx := context.Background()
	node, err := keyway.Start(ctx, alone())
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	balance := map[string]int{"alice": 100, "bob": 0}
	err = node.DoAll(ctx, []string{"bob", "alice"}, func(xs keyway.Execution) error {
		balance["alice"] -= 30
		balance["bob"] += 30
		fmt.Println(xs.Keys(), xs.TokenOf("alice") > 0)
		return nil
	})
	fmt.Println(balance, err)
	// Output:
	// [alice bob] true
	// map[alice:70 bob:30] <nil>
}

// What waits for a key is handled at once, with one token.
func ExampleNewBatcher() {
	ctx := context.Background()
	node, err := keyway.Start(ctx, alone())
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	left := 10
	sell, err := keyway.NewBatcher(node, keyway.BatchConfig{}, func(x keyway.Execution, orders []*keyway.Item[int, bool]) error {
		for _, order := range orders { // in one transaction, say
			if order.Out = order.In <= left; order.Out {
				left -= order.In
			}
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(sell.Do(ctx, "sku-7", 8))
	fmt.Println(sell.Do(ctx, "sku-7", 8))
	// Output:
	// true <nil>
	// false <nil>
}

// A program with metrics of its own has those of its node in the same registry, and
// serves them where it likes.
func ExampleNode_Collect() {
	ctx := context.Background()
	node, err := keyway.Start(ctx, alone())
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	registry := prometheus.NewRegistry()
	registry.MustRegister(node)
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{}) // for GET /metrics
	answer := httptest.NewRecorder()
	metrics.ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	fmt.Println(strings.Contains(answer.Body.String(), "keyway_worker_ready 1"))
	// Output: true
}
