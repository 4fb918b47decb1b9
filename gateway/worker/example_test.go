package worker_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/gossip"
)

// startWorker starts a worker that is a cluster of its own.
func startWorker(ctx context.Context, addr string) (*worker.Worker, *gossip.Cluster, error) {
	members, err := gossip.Start(ctx, gossip.Config{
		Self:   ring.Member{Name: "w1", Role: ring.RoleWorker, Addr: addr},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, nil, err
	}
	server, err := store.StartEmbedded("127.0.0.1:0", "") // for one machine; others need a Redis
	if err != nil {
		return nil, nil, err
	}
	store, err := store.New(server.URL(), store.Config{NewCluster: true})
	if err != nil {
		return nil, nil, err
	}
	worker, err := worker.Start(ctx, worker.Config{Members: members, Store: store, NewCluster: true})
	if err != nil {
		return nil, nil, err
	}
	return worker, members, worker.Await(ctx)
}

// A worker that shares a ring with others runs a function with its key held.
func ExampleWorker_Do() {
	ctx := context.Background()
	owner, members, err := startWorker(ctx, "127.0.0.1:8000")
	if err != nil {
		log.Fatal(err)
	}
	defer members.Close()
	defer owner.Close()

	ship := func(ctx context.Context, order string, token int64) error {
		inContext, _ := worker.TokenFrom(ctx)
		fmt.Println("shipping", order, token == inContext)
		return nil
	}
	err = owner.Do(ctx, "order-42", func(x gateway.Execution) error {
		return ship(x.Context(), x.Key(), x.Token()) // nobody else works on order-42
	})
	fmt.Println(err)
	// Output:
	// shipping order-42 true
	// <nil>
}

// Reads of a key that arrive together run once.
func ExampleShare() {
	ctx := context.Background()
	owner, members, err := startWorker(ctx, "127.0.0.1:8000")
	if err != nil {
		log.Fatal(err)
	}
	defer members.Close()
	defer owner.Close()

	balance, _, err := worker.Share(ctx, owner, "account-7", "balance", func(x gateway.Execution) (int, error) {
		return 100, nil
	})
	fmt.Println(balance, err)
	// Output: 100 <nil>
}

// A worker that serves HTTP, with a router in front of it in the same process.
func ExampleWorker_NewServer() {
	ctx := context.Background()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	worker, members, err := startWorker(ctx, listener.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer members.Close()
	defer worker.Close()
	app := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, _ := gateway.KeyFromHeader(r.Header)
		fmt.Fprintf(w, "%s of %s, one at a time", r.Method, key)
	})
	server := worker.NewServer(worker.Handler(app))
	defer server.Close()
	go server.Serve(listener)

	key, err := gateway.ParseKeySource("path:/orders/{key}")
	if err != nil {
		log.Fatal(err)
	}
	router, err := router.New(router.Config{Members: members, Keys: gateway.KeySources{key}})
	if err != nil {
		log.Fatal(err)
	}
	defer router.Close()
	front := httptest.NewServer(router)
	defer front.Close()

	res, err := http.Post(front.URL+"/orders/42", "text/plain", strings.NewReader("ship it"))
	if err != nil {
		log.Fatal(err)
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	fmt.Println(res.StatusCode, string(body))
	// Output: 200 POST of 42, one at a time
}
