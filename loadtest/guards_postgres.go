//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// poolSize is how many connections each process has to PostgreSQL.
const poolSize = 32

// postgres excludes in the database that has the data anyway.
func (a *app) postgres(ctx context.Context) (guard, func(), error) {
	pool, err := pgxpool.New(ctx, fmt.Sprintf("%s&pool_max_conns=%d", a.Postgres, poolSize))
	if err != nil {
		return nil, nil, err
	}
	d := &database{a, pool}
	g := d.version
	switch a.Guard {
	case guardRow:
		g = d.locked("SELECT version FROM stock WHERE key = $1 FOR UPDATE")
	case guardAdvisory:
		g = d.locked("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))")
	}
	return g, pool.Close, nil
}

type database struct {
	app  *app
	pool *pgxpool.Pool
}

// locked runs a job in a transaction that begins with a statement that locks.
func (d *database) locked(statement string) guard {
	return func(ctx context.Context, j job) (value int64, err error) {
		err = pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, statement, j.key); err != nil {
				return err
			}
			value, err = d.app.execute(ctx, j, 0)
			return err
		})
		return value, err
	}
}

// version does the work without excluding anybody, and again if another one's
// update was quicker. The database counts, so the records cannot: see
// [postgres.sold].
func (d *database) version(ctx context.Context, j job) (int64, error) {
	for {
		var version int64
		if err := d.pool.QueryRow(ctx, "SELECT version FROM stock WHERE key = $1", j.key).Scan(&version); err != nil {
			return 0, err
		}
		if err := d.app.work(ctx, j); err != nil {
			return 0, err
		}
		if j.read {
			d.app.table.Count(j.index, true)
			return version, nil
		}
		done, err := d.pool.Exec(ctx, "UPDATE stock SET version = version + 1 WHERE key = $1 AND version = $2", j.key, version)
		switch {
		case err != nil:
			return 0, err
		case done.RowsAffected() == 1:
			d.app.table.Count(j.index, false)
			return version + 1, nil
		case done.RowsAffected() > 1:
			return 0, errors.New("two rows have one key")
		}
	}
}
