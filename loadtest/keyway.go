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

// serveMember answers requests as a Keyway worker, until ctx ends.
func (a *app) serveMember(ctx context.Context, listener net.Listener, stdout io.Writer) error {
	node, err := keyway.Start(ctx, keyway.Config{
		Name:         a.Name,
		Listener:     listener,
		Advertise:    a.Advertise,
		Join:         []string{a.Join},
		Redis:        "redis://" + a.Redis[0],
		NewCluster:   true,
		Settings:     ring.Settings{Cluster: a.Cluster, TTL: a.TTL},
		DrainTimeout: drainTime,
		Logger:       slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	defer node.Close()
	var handler http.Handler = a
	if a.Guard == guardBatch {
		if handler, err = a.batches(node); err != nil {
			return err
		}
	}
	fmt.Fprintln(stdout, "ready", node.Addr())
	return node.Serve(ctx, handler)
}

// item is a request in a batch.
type item = worker.Item[job, outcome]

// batches returns a handler that runs the requests which wait for a key as one
// critical section.
func (a *app) batches(node *keyway.Node) (http.Handler, error) {
	b, err := keyway.NewBatcher(node, keyway.BatchConfig{}, a.executeBatch)
	if err != nil {
		return nil, err
	}
	return worker.BatchHandler(b, a.job, reply), nil
}

// executeBatch is execute for the jobs of a batch, which are all for one key and
// of one work: they read once and write once, and each has a result of its own.
func (a *app) executeBatch(x gateway.Execution, items []*item) error {
	first := items[0].In
	begun := a.clock.Now()
	r, err := a.table.Begin(first.index, x.Token())
	if err != nil {
		return err
	}
	value := r.Value()
	var writes int64
	for _, it := range items {
		if !it.In.read {
			writes++
		}
		it.Out = outcome{key: first.key, value: value + writes, begun: begun}
	}
	first.read, first.count = writes == 0, writes
	if err := a.do(x.Context(), first); err != nil {
		r.End()
		return err
	}
	return r.WriteMany(writes, int64(len(items))-writes)
}

// service takes locks at the worker that keeps them.
func (a *app) service(ctx context.Context) (enter, func(), error) {
	client, err := keyway.NewClient(ctx, keyway.ClientConfig{
		Name:     a.Name,
		Join:     []string{a.Join},
		Settings: ring.Settings{Cluster: a.Cluster, TTL: a.TTL},
		Logger:   slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return nil, nil, err
	}
	return lockers.Keyway(client), func() { _ = client.Close() }, nil
}
