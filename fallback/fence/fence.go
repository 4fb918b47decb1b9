package fence

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ErrStale means that a write was refused, since one with a later token came
// before.
var ErrStale = errors.New("fence: a later token was seen")

// errToken means that a token is outside of [0, 2^53).
var errToken = errors.New("fence: token out of range")

//go:embed guard.lua
var guard string

// Do runs a Redis command whose first argument is a key, such as
//
//	fence.Do(ctx, client, token, "HSET", "account:1", "balance", 70)
//
// and returns its reply as go-redis gives it for Cmd; a nil reply is
// redis.Nil. It returns ErrStale, and writes nothing, if a write to the key
// came with a later token before.
func Do(ctx context.Context, client redis.Scripter, token int64, command, key string, args ...any) (any, error) {
	if err := check(token); err != nil {
		return nil, err
	}
	reply, err := redis.NewScript(guard).Run(ctx, client, []string{fenceKey(key), key}, append([]any{token, command}, args...)...).Slice()
	if redis.HasErrorPrefix(err, "CROSSSLOT") {
		err = fmt.Errorf("%w: a key with a closing brace needs a hash tag of its own, such as {a}, in a cluster", err)
	}
	if err != nil {
		return nil, fmt.Errorf("fence: %s of %q: %w", command, key, err)
	}
	if reply[0] == int64(0) {
		return nil, fmt.Errorf("%w: %q has %v, this is %d", ErrStale, key, reply[1], token)
	}
	if len(reply) < 2 || reply[1] == nil {
		return nil, redis.Nil
	}
	if err, ok := reply[1].(error); ok {
		return nil, fmt.Errorf("fence: %s of %q: %w", command, key, err)
	}
	return reply[1], nil
}

// fenceKey is where a key's token is: in the key's slot of a cluster. No two keys share one.
func fenceKey(key string) string {
	if _, after, ok := strings.Cut(key, "{"); ok {
		if end := strings.IndexByte(after, '}'); end > 0 {
			return "fence:" + key
		}
	}
	return "fence{" + key + "}"
}

// Applied returns ErrStale if a statement that compares the token, as the
// package's doc shows, changed no row: a later token was seen, or there is no
// such row.
func Applied(r sql.Result) error {
	n, err := r.RowsAffected()
	if err != nil {
		return err
	}
	if n == 0 {
		return ErrStale
	}
	return nil
}

// execer is a transaction: *sql.Tx, or *sql.Conn inside of one.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Advance records a token in the table fence, or returns ErrStale if a later
// one is there: the transaction must then be rolled back. The statement is
// PostgreSQL's and SQLite's.
func Advance(ctx context.Context, tx execer, key string, token int64) error {
	if err := check(token); err != nil {
		return err
	}
	r, err := tx.ExecContext(ctx, `INSERT INTO fence (key, token) VALUES ($1, $2)
		ON CONFLICT (key) DO UPDATE SET token = excluded.token WHERE fence.token <= excluded.token`, key, token)
	if err != nil {
		return fmt.Errorf("fence: token of %q: %w", key, err)
	}
	if err := Applied(r); err != nil {
		return fmt.Errorf("%w: %q with %d", err, key, token)
	}
	return nil
}

func check(token int64) error {
	if token < 0 || token >= 1<<53 {
		return fmt.Errorf("%w: %d", errToken, token)
	}
	return nil
}
