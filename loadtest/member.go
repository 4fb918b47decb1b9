//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/gossip"
)

// drainTime is for handing the partitions over when the process is to end.
const drainTime = 15 * time.Second

// serveMember answers requests as a Keyway worker, until ctx ends.
func (a *app) serveMember(ctx context.Context, listener net.Listener, stdout io.Writer) error {
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	addr := listener.Addr().String()
	members, err := gossip.Start(ctx, gossip.Config{
		Settings: ring.Settings{Cluster: a.Cluster, TTL: a.TTL},
		Self:     ring.Member{Name: a.Name, Role: ring.RoleWorker, State: ring.StateJoining, Addr: addr, Link: true},
		Bind:     "127.0.0.1:0",
		Seeds:    []string{a.Join},
		Logger:   logger,
	})
	if err != nil {
		return err
	}
	defer members.Close()
	store, err := store.New("redis://"+a.Redis[0], store.Config{Settings: members.Settings(), NewCluster: true, Logger: logger})
	if err != nil {
		return err
	}
	defer store.Close()
	worker, err := worker.Start(ctx, worker.Config{
		Members: members, Store: store, NewCluster: true, OnPeers: members.AddSeeds, Logger: logger,
	})
	if err != nil {
		return err
	}
	defer worker.Close()
	server := worker.NewServer(worker.Handler(a))
	defer server.Close()
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	if err := worker.Await(ctx); err != nil {
		return err
	}
	fmt.Fprintln(stdout, "ready", addr)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	return errors.Join(worker.Drain(end), members.Leave(end))
}
