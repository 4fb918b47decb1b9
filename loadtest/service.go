//go:build linux

package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/keyway-go/keyway"
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
	return func(ctx context.Context, key string) (context.Context, int64, func(), error) {
		lock, err := client.Lock(ctx, key)
		if err != nil {
			return nil, 0, nil, err
		}
		// An unlock that fails is repeated by the client; a lock that was lost shows in the records.
		return lock.Context(), lock.Token(), func() { _ = lock.Unlock(context.WithoutCancel(ctx)) }, nil
	}, func() { _ = client.Close() }, nil
}
