//go:build linux

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/go-sql-driver/mysql"

	"github.com/keyway-go/keyway/loadtest/internal/proc"
)

// mariadbServer is MariaDB without accounts.
var mariadbServer = server{
	pkg:      "mariadb-server",
	programs: func() []string { return []string{proc.Find("mariadb-install-db"), proc.Find("mariadbd")} },
	start:    startMariaDB,
	url:      func(addr string) string { return "root@tcp(" + addr + ")/" },
	commands: func(ctx context.Context, url string) (n int64, err error) {
		db, err := openMariaDB(url)
		if err != nil {
			return 0, err
		}
		defer db.Close()
		var name string
		return n, db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &n)
	},
}

func startMariaDB(l *launch) (spec proc.Spec, err error) {
	data := filepath.Join(l.dir, "data")
	common := []string{"--no-defaults", "--datadir=" + data}
	if os.Geteuid() == 0 {
		common = append(common, "--user=root")
	}
	install := exec.CommandContext(l, proc.Find("mariadb-install-db"), append(common, "--skip-test-db")...)
	if out, err := install.CombinedOutput(); err != nil {
		return spec, fmt.Errorf("mariadb-install-db: %w\n%s", err, out)
	}
	spec.Program = proc.Find("mariadbd")
	spec.Args = append(common, "--bind-address="+l.host, "--port="+l.port, "--socket="+filepath.Join(l.dir, "socket"), "--pid-file="+filepath.Join(l.dir, "pid"),
		"--skip-grant-tables", "--max-connections="+strconv.Itoa(l.clients))
	return spec, nil
}

// openMariaDB takes the driver's form of an address. Arguments are put into
// statements here, which saves a round trip each.
func openMariaDB(url string) (*sql.DB, error) {
	cfg, err := mysql.ParseDSN(url)
	if err != nil {
		return nil, err
	}
	cfg.InterpolateParams = true
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// named is MariaDB's named lock, which belongs to a connection.
func (a *app) named() (enter, func(), error) {
	db, err := openMariaDB(a.Stores[storeMariaDB])
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(connectionsEach)
	db.SetMaxIdleConns(connectionsEach)
	lock := func(ctx context.Context, key string) (context.Context, int64, func(), error) {
		c, err := db.Conn(ctx)
		if err != nil {
			return nil, 0, nil, err
		}
		var got sql.NullInt64
		err = c.QueryRowContext(ctx, "SELECT GET_LOCK(?, ?)", a.lockName(key), lockPatience.Seconds()).Scan(&got)
		if err == nil && got.Int64 != 1 {
			err = errPatience
		}
		if err != nil {
			return nil, 0, nil, errors.Join(err, c.Close())
		}
		return ctx, 0, func() {
			_, _ = c.ExecContext(context.WithoutCancel(ctx), "DO RELEASE_LOCK(?)", a.lockName(key)) // fails with the connection, and the lock with it
			_ = c.Close()
		}, nil
	}
	return lock, func() { _ = db.Close() }, nil
}
