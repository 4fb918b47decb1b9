// Package local starts the nodes of an example: workers in one process that
// share the keys.
package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/gossip"
)

// Node is a worker and its place among the members.
type Node struct {
	*worker.Worker
	Name    string
	members *gossip.Cluster
}

// Start starts that many nodes, n1, n2, …, and waits until each serves its
// share of the keys.
func Start(ctx context.Context, count int) (nodes []*Node, err error) {
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	memory := store.NewMemory(store.MemoryConfig{NewCluster: true})
	var seeds []string
	for i := range count {
		name := fmt.Sprintf("n%d", i+1)
		members, err := gossip.Start(ctx, gossip.Config{
			Self:   ring.Member{Name: name, Role: ring.RoleWorker, State: ring.StateJoining, Addr: "127.0.0.1:" + fmt.Sprint(1+i)},
			Bind:   "127.0.0.1:0",
			Seeds:  seeds,
			Logger: logger,
		})
		if err != nil {
			return nil, err
		}
		w, err := worker.Start(ctx, worker.Config{Members: members, Store: memory, NewCluster: true, Logger: logger})
		if err != nil {
			return nil, errors.Join(err, members.Close())
		}
		if err := w.Await(ctx); err != nil {
			return nil, errors.Join(err, w.Close(), members.Close())
		}
		nodes = append(nodes, &Node{w, name, members})
		seeds = []string{members.Addr()}
	}
	return nodes, nil
}

// Close hands the node's keys over and ends it.
func (n *Node) Close(ctx context.Context) error {
	return errors.Join(n.Drain(ctx), n.members.Leave(ctx), n.Worker.Close(), n.members.Close())
}
