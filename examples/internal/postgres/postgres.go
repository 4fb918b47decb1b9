// Package postgres gives an example its PostgreSQL: the server that the user
// names, or one of its own that is thrown away.
package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrMissing means that PostgreSQL is not installed.
var ErrMissing = errors.New("PostgreSQL is not installed (Debian: apt-get install postgresql; macOS: brew install postgresql), and no other server was named with --postgres URL")

// connections is the size of the pool: what the examples run at once.
const connections = 16

// How long the server may take.
const (
	startPatience = 30 * time.Second
	stopPatience  = 10 * time.Second
)

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
	s, err := start(ctx)
	if err != nil {
		return nil, nil, err
	}
	db, err = s.await(ctx)
	if err != nil {
		s.stop()
		return nil, nil, fmt.Errorf("the PostgreSQL of this example is not ready: %w\n%s", err, &s.log)
	}
	return db, func() { db.Close(); s.stop() }, nil
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

// server is a throw-away server. It listens on a socket in its directory, on
// no port.
type server struct {
	dir  string
	cmd  *exec.Cmd
	log  bytes.Buffer // read once it has ended
	done chan struct{}
}

func start(ctx context.Context) (_ *server, err error) {
	initdb, postgres := find("initdb"), find("postgres")
	if initdb == "" || postgres == "" {
		return nil, ErrMissing
	}
	dir, err := os.MkdirTemp("", "keyway-pg-")
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir, done: make(chan struct{})}
	defer func() {
		if err != nil {
			os.RemoveAll(dir)
		}
	}()
	if os.Geteuid() == 0 {
		if out, err := exec.CommandContext(ctx, "chown", "postgres", dir).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("chown: %w: %s", err, out)
		}
	}
	data := filepath.Join(dir, "data")
	init := asServer(ctx, initdb, "--pgdata", data, "--username", "postgres", "--auth", "trust", "--no-sync")
	init.Dir = dir
	if out, err := init.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	// It is not bound to ctx: it ends when it is closed.
	s.cmd = asServer(context.WithoutCancel(ctx), postgres, "-D", data, "-k", dir, "-c", "listen_addresses=")
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = dir, &s.log, &s.log
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = s.cmd.Wait() // its log tells
		close(s.done)
	}()
	return s, nil
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
func asServer(ctx context.Context, program string, args ...string) *exec.Cmd {
	if os.Geteuid() == 0 {
		args = append([]string{"--reuid=postgres", "--regid=postgres", "--clear-groups", program}, args...)
		program = "setpriv"
	}
	return exec.CommandContext(ctx, program, args...)
}

// await connects as soon as the server answers.
func (s *server) await(ctx context.Context) (*pgxpool.Pool, error) {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for {
		db, err := connect(ctx, "user=postgres dbname=postgres host="+s.dir)
		if err == nil {
			return db, nil
		}
		select {
		case <-s.done:
			return nil, errors.New("it has ended")
		case <-ctx.Done():
			return nil, err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// stop ends the server, and removes its data.
func (s *server) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGINT) // to end at once; fails if it has ended
	select {
	case <-s.done:
	case <-time.After(stopPatience):
		_ = s.cmd.Process.Kill()
		<-s.done
	}
	os.RemoveAll(s.dir)
}
