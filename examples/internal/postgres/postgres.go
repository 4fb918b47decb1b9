// Package postgres gives an example its PostgreSQL: the server that the user
// names, or one of its own that is thrown away.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keyway-go/keyway/internal/cluster/postgres"
	"github.com/keyway-go/keyway/internal/cluster/proc"
)

// ErrMissing means that PostgreSQL is not installed.
var ErrMissing = errors.New("PostgreSQL is not installed (Debian: apt-get install postgresql; macOS: brew install postgresql), and no other server was named with --postgres URL")

// connections is the size of the pool: what the examples run at once.
const connections = 16

// patience is how long the server may take to start, and to end.
const patience = 30 * time.Second

// Open connects to the server at url; if that is empty, it starts one of its
// own, with PostgreSQL's defaults: a commit is on the disk. close ends the
// connections, and that server with its data.
func Open(ctx context.Context, url string) (db *pgxpool.Pool, close func(), err error) {
	if url != "" {
		db, err = connect(ctx, url)
		if err != nil {
			return nil, nil, fmt.Errorf("connecting to --postgres: %w", err)
		}
		return db, db.Close, nil
	}
	dir, err := os.MkdirTemp("", "keyway-pg-")
	if err != nil {
		return nil, nil, err
	}
	db, server, err := start(ctx, dir)
	if err != nil {
		os.RemoveAll(dir)
		return nil, nil, err
	}
	return db, func() {
		db.Close()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = server.End(ctx, syscall.SIGINT) // at once
		os.RemoveAll(dir)
	}, nil
}

func connect(ctx context.Context, url string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = connections
	db, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := db.Ping(ctx); err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}

// start starts a throw-away server, which listens on a socket in its directory and on no port, and connects to it.
func start(ctx context.Context, dir string) (db *pgxpool.Pool, server *proc.Process, err error) {
	if slices.Contains(postgres.Programs(), "") {
		return nil, nil, ErrMissing
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	spec, err := postgres.Make(ctx, dir, "-k", dir, "-c", "listen_addresses=")
	if err != nil {
		return nil, nil, err
	}
	spec.Name = "PostgreSQL"
	spec.Serves = func(ctx context.Context) (err error) {
		db, err = connect(ctx, "user=postgres dbname=postgres host="+dir)
		return err
	}
	server, err = proc.Start(ctx, spec)
	return db, server, err
}
