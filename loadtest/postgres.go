//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/keyway-go/keyway/loadtest/internal/proc"
)

// postgres is a running PostgreSQL with a table of keys and versions.
type postgres struct {
	process *proc.Process
	url     string
}

// findPostgres returns the path of one of PostgreSQL's programs; "" if it is
// not installed. Debian has them in directories by version.
func findPostgres(program string) string {
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // the pattern is good
	return proc.Find(program, dirs...)
}

// asServer returns a command that runs as a user whom PostgreSQL takes: it
// refuses root.
func asServer(program string, args ...string) []string {
	if os.Geteuid() != 0 {
		return append([]string{program}, args...)
	}
	return append([]string{"setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", program}, args...)
}

// startPostgres starts a PostgreSQL of the stack's own, with its safe
// defaults.
func (s *stack) startPostgres(ctx context.Context) error {
	addr, err := proc.FreeAddr()
	if err != nil {
		return err
	}
	_, port, _ := strings.Cut(addr, ":")
	dir := filepath.Join(s.dir, "postgres-"+s.name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		if out, err := exec.CommandContext(ctx, "chown", "postgres:postgres", dir).CombinedOutput(); err != nil {
			return fmt.Errorf("chown: %w: %s", err, out)
		}
	}
	data := filepath.Join(dir, "data")
	initdb := asServer(findPostgres("initdb"), "--pgdata", data, "--username", "postgres", "--auth", "trust", "--no-sync")
	cmd := exec.CommandContext(ctx, initdb[0], initdb[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	server := asServer(findPostgres("postgres"), "-D", data, "-p", port, "-k", "", "-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200")
	s.postgres = &postgres{url: "postgres://postgres@" + addr + "/postgres?sslmode=disable"}
	s.postgres.process, err = s.start(groupStore, proc.Spec{Name: "postgres-" + s.name, Program: server[0], Args: server[1:], Ready: "ready to accept connections"})
	if err != nil {
		return err
	}
	return s.postgres.run(ctx, func(c *pgx.Conn) error {
		_, err := c.Exec(ctx, "CREATE TABLE stock (key text PRIMARY KEY, version bigint NOT NULL)")
		if err == nil {
			_, err = c.Exec(ctx, "INSERT INTO stock SELECT 'k' || lpad(i::text, 7, '0'), 0 FROM generate_series(0, $1) i", s.keys-1)
		}
		return err
	})
}

func (p *postgres) run(ctx context.Context, f func(*pgx.Conn) error) error {
	c, err := pgx.Connect(ctx, p.url)
	if err != nil {
		return err
	}
	return errors.Join(f(c), c.Close(ctx))
}

// sold returns how often rows were updated.
func (p *postgres) sold(ctx context.Context) (n int64, err error) {
	return n, p.run(ctx, func(c *pgx.Conn) error {
		return c.QueryRow(ctx, "SELECT sum(version)::bigint FROM stock").Scan(&n)
	})
}
