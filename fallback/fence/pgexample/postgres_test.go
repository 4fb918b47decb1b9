package pgexample

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"syscall"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/keyway-go/keyway/internal/cluster/postgres"
	"github.com/keyway-go/keyway/internal/cluster/proc"
)

// db is the database of the examples.
var db *sql.DB

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "pgexample:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "pgexample")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	spec, err := postgres.Make(ctx, dir, "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off")
	if err != nil {
		return 0, err
	}
	if db, err = sql.Open("pgx", "user=postgres dbname=postgres host="+dir); err != nil {
		return 0, err
	}
	defer db.Close()
	server, err := proc.Start(ctx, spec)
	if err != nil {
		return 0, err
	}
	defer func() { _ = server.End(ctx, syscall.SIGQUIT) }() // at once
	return m.Run(), nil
}
