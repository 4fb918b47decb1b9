//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/loadtest/internal/lockers"
	"github.com/keyway-go/keyway/ring"
)

// drainTime is for handing the partitions over when the process is to end.
const drainTime = 15 * time.Second

func logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// serveMember answers requests as a Keyway worker, until ctx ends.
func (a *app) serveMember(ctx context.Context, listener net.Listener, stdout io.Writer) error {
	node, err := keyway.Start(ctx, keyway.Config{
		Name:         a.Name,
		Handler:      a,
		Listener:     listener,
		Join:         []string{a.Join},
		Redis:        "redis://" + a.Redis[0],
		NewCluster:   true,
		Settings:     ring.Settings{Cluster: a.Cluster, TTL: a.TTL},
		DrainTimeout: drainTime,
		Logger:       logger(),
	})
	if err != nil {
		return err
	}
	defer node.Close()
	var handler http.Handler // nil for a
	if a.Design == keywayBatch {
		batcher, err := keyway.NewBatcher(node, keyway.BatchConfig{}, a.executeBatch)
		if err != nil {
			return err
		}
		handler = worker.BatchHandler(batcher, a.job, reply)
	}
	fmt.Fprintln(stdout, "ready")
	return node.Serve(ctx, handler)
}

// executeBatch runs the jobs of a batch, which are all for one key and of one work, as one critical section:
// they read once and write once, and each has a result of its own.
func (a *app) executeBatch(x gateway.Execution, items []*worker.Item[job, int64]) error {
	all := items[0].In
	all.count = int64(len(items))
	value, err := a.execute(x.Context(), all, x.Token())
	for _, it := range items {
		it.Out = value
	}
	return err
}

// service takes locks at the worker that keeps them.
func (a *app) service(ctx context.Context) (enter, func(), error) {
	client, err := keyway.NewClient(ctx, keyway.ClientConfig{
		Name: a.Name, Join: []string{a.Join}, Settings: ring.Settings{Cluster: a.Cluster, TTL: a.TTL}, Logger: logger(),
	})
	if err != nil {
		return nil, nil, err
	}
	return lockers.Keyway(client), func() { _ = client.Close() }, nil
}
