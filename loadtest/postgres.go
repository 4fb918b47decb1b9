//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keyway-go/keyway/internal/cluster/postgres"
	"github.com/keyway-go/keyway/loadtest/internal/proc"
)

var postgresServer = server{
	pkg:      "postgresql",
	programs: postgres.Programs,
	start:    startPostgres,
	url:      func(addr string) string { return "postgres://postgres@" + addr + "/postgres?sslmode=disable" },
	prepare:  preparePostgres,
	commands: func(ctx context.Context, url string) (n int64, err error) {
		return n, onPostgres(ctx, url, func(c *pgx.Conn) error {
			return c.QueryRow(ctx, "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements").Scan(&n)
		})
	},
}

func startPostgres(l *launch) (proc.Spec, error) {
	return postgres.Make(l, l.dir, "-p", l.port, "-k", "", "-c", "listen_addresses="+l.host,
		"-c", "max_connections="+strconv.Itoa(l.clients), "-c", "shared_preload_libraries=pg_stat_statements")
}

// fullStock is what there is of each article in the beginning.
const fullStock = 1_000_000_000

// stockTable is the name of a stack's table, which has a row for each key.
func stockTable(cluster string) string { return pgx.Identifier{cluster}.Sanitize() }

func preparePostgres(ctx context.Context, s *stack, url string) error {
	table := stockTable(s.cluster)
	statements := []string{
		"CREATE TABLE " + table + " (key text PRIMARY KEY, version bigint NOT NULL, remaining bigint NOT NULL)",
		fmt.Sprintf("INSERT INTO %s SELECT 'k' || lpad(i::text, 7, '0'), 0, %d FROM generate_series(0, %d) i", table, fullStock, s.keys-1),
		"CREATE EXTENSION pg_stat_statements",
	}
	return onPostgres(ctx, url, func(c *pgx.Conn) error {
		for _, statement := range statements {
			if _, err := c.Exec(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
}

func onPostgres(ctx context.Context, url string, f func(*pgx.Conn) error) error {
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	return errors.Join(f(c), c.Close(ctx))
}

// soldInPostgres returns how much of the stock is gone.
func (s *stack) soldInPostgres(ctx context.Context) (n int64, err error) {
	return n, onPostgres(ctx, s.urls[storePostgres], func(c *pgx.Conn) error {
		return c.QueryRow(ctx, fmt.Sprintf("SELECT sum(%d - remaining)::bigint FROM %s", fullStock, stockTable(s.cluster))).Scan(&n)
	})
}

func openPostgres(ctx context.Context, url string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = connectionsEach
	return pgxpool.NewWithConfig(ctx, cfg)
}

// sellInPostgres sells in one transaction: the guard's, if it has one.
func (a *app) sellInPostgres(ctx context.Context, j job) error {
	if j.transaction != nil {
		return a.sellWithin(ctx, j.transaction, j)
	}
	return pgx.BeginFunc(ctx, a.postgres, func(tx pgx.Tx) error { return a.sellWithin(ctx, tx, j) })
}

// sellWithin reads how much is left of an article, and writes less.
func (a *app) sellWithin(ctx context.Context, tx pgx.Tx, j job) error {
	var left int64
	if err := tx.QueryRow(ctx, "SELECT remaining FROM "+stockTable(a.Cluster)+" WHERE key = $1", j.key).Scan(&left); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "UPDATE "+stockTable(a.Cluster)+" SET remaining = $2 WHERE key = $1", j.key, left-j.count)
	return err
}

// locked excludes by a transaction that begins with a statement that locks.
func (a *app) locked(statement string) guard {
	return func(ctx context.Context, j job) (value int64, err error) {
		err = pgx.BeginFunc(ctx, a.postgres, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, statement, j.key); err != nil {
				return err
			}
			j.transaction = tx
			value, err = a.execute(ctx, j, 0)
			return err
		})
		return value, err
	}
}

// versioned does the work without excluding anybody, and again if another
// one's update was quicker. The database excludes, so the records cannot
// judge: see [stack.since].
func (a *app) versioned(ctx context.Context, j job) (version int64, err error) {
	table := stockTable(a.Cluster)
	for {
		var left int64
		if err := a.postgres.QueryRow(ctx, "SELECT version, remaining FROM "+table+" WHERE key = $1", j.key).Scan(&version, &left); err != nil {
			return 0, err
		}
		if j.work == workWait {
			if err := a.wait(ctx); err != nil {
				return 0, err
			}
		}
		tag, err := a.postgres.Exec(ctx, "UPDATE "+table+" SET version = version + 1, remaining = $3 WHERE key = $1 AND version = $2", j.key, version, left-1)
		if err != nil {
			return 0, err
		}
		if tag.RowsAffected() == 1 {
			a.table.Count(j.index)
			return version + 1, nil
		}
	}
}
