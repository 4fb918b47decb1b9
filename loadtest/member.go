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
