//go:build linux

package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/loadtest/internal/lockers"
	"github.com/keyway-go/keyway/ring"
)

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
