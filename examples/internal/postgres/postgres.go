// Package postgres gives an example its PostgreSQL: the server that the user
// names, or one of its own that is thrown away.
package postgres

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keyway-go/keyway/internal/cluster/postgres"
	"github.com/keyway-go/keyway/internal/cluster/proc"
)

// connections is the size of the pool: what the examples run at once.
const connections = 16

// patience is how long the server may take to end.
const patience = 30 * time.Second

// Open opens the database at url. If that is empty, it starts a server of its
// own with PostgreSQL's defaults, so a commit is on the disk. end closes the
// connections, and removes that server with its data.
func Open(ctx context.Context, url string) (db *pgxpool.Pool, end func(), err error) {
	stop := func() {}
	if url == "" {
		if url, stop, err = start(ctx); err != nil {
			return nil, nil, err
		}
	}
	cfg, err := pgxpool.ParseConfig(url)
	if err == nil {
		cfg.MaxConns = connections
		db, err = pgxpool.NewWithConfig(ctx, cfg)
	}
	if err != nil {
		stop()
		return nil, nil, err
	}
	return db, func() { db.Close(); stop() }, nil
}

// start starts a throw-away server, which listens on a socket in its directory and on no port.
func start(ctx context.Context) (url string, stop func(), err error) {
	dir, err := os.MkdirTemp("", "keyway-pg-")
	if err != nil {
		return "", nil, err
	}
	spec, err := postgres.Make(ctx, dir, "-k", dir, "-c", "listen_addresses=")
	var server *proc.Process
	if err == nil {
		server, err = proc.Start(ctx, spec)
	}
	if err != nil {
		os.RemoveAll(dir)
		return "", nil, fmt.Errorf("without --postgres URL: %w", err)
	}
	return "user=postgres dbname=postgres host=" + dir, func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = server.End(ctx, syscall.SIGINT) // at once
		os.RemoveAll(dir)
	}, nil
}
