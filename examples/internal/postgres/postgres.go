// Package postgres gives an example its PostgreSQL: the server that the user
// names, or one of its own that is thrown away.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

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
	initdb, postgres := find("initdb"), find("postgres")
	if initdb == "" || postgres == "" {
		return nil, nil, ErrMissing
	}
	if os.Geteuid() == 0 {
		if out, err := exec.CommandContext(ctx, "chown", "postgres", dir).CombinedOutput(); err != nil {
			return nil, nil, fmt.Errorf("chown: %w: %s", err, out)
		}
	}
	data := filepath.Join(dir, "data")
	init := asServer(initdb, "--pgdata", data, "--username", "postgres", "--auth", "trust", "--no-sync")
	init.Dir = dir
	if out, err := init.CombinedOutput(); err != nil {
		return nil, nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	serve := asServer(postgres, "-D", data, "-k", dir, "-c", "listen_addresses=")
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	server, err = proc.Start(ctx, proc.Spec{
		Name: "PostgreSQL", Program: serve.Path, Args: serve.Args[1:],
		Run: func(cmd *exec.Cmd) error {
			cmd.Dir = dir
			return cmd.Start()
		},
		Serves: func(ctx context.Context) (err error) {
			db, err = connect(ctx, "user=postgres dbname=postgres host="+dir)
			return err
		},
	})
	return db, server, err
}

// find returns the path of one of PostgreSQL's programs; "" if it is not
// installed. Debian has them in directories by version.
func find(program string) string {
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin/", "/opt/homebrew/opt/postgresql@*/bin/"} {
		if paths, _ := filepath.Glob(pattern + program); len(paths) > 0 {
			return paths[len(paths)-1]
		}
	}
	path, _ := exec.LookPath(program)
	return path
}

// asServer returns a command that runs as a user whom PostgreSQL takes: it
// refuses root.
func asServer(program string, args ...string) *exec.Cmd {
	if os.Geteuid() == 0 {
		args = append([]string{"--reuid=postgres", "--regid=postgres", "--clear-groups", program}, args...)
		program = "setpriv"
	}
	return exec.Command(program, args...)
}
