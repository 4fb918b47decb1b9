package pgexample

import (
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
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
	dir, err := os.MkdirTemp("", "pgexample")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	port, err := freePort()
	if err != nil {
		return 0, err
	}
	p, err := newPostgres(dir)
	if err != nil {
		return 0, err
	}
	if err := p.command("initdb", "-D", p.data, "-A", "trust", "-U", "postgres", "--no-sync"); err != nil {
		return 0, err
	}
	options := fmt.Sprintf("-c listen_addresses=127.0.0.1 -c port=%d -c fsync=off -k %s", port, dir)
	if err := p.command("pg_ctl", "-D", p.data, "-w", "-l", filepath.Join(dir, "log"), "-o", options, "start"); err != nil {
		return 0, err
	}
	defer func() { _ = p.command("pg_ctl", "-D", p.data, "-m", "immediate", "stop") }()
	db, err = sql.Open("pgx", fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port))
	if err != nil {
		return 0, err
	}
	defer db.Close()
	return m.Run(), nil
}

// postgres runs the server's programs, as another user if this one is root.
type postgres struct {
	bin, data string
	prefix    []string
}

func newPostgres(dir string) (*postgres, error) {
	p := &postgres{data: filepath.Join(dir, "data")}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/pg_ctl")
	if err != nil {
		return nil, err
	}
	if len(found) > 0 {
		p.bin = filepath.Dir(found[len(found)-1])
	} else if path, err := exec.LookPath("pg_ctl"); err == nil {
		p.bin = filepath.Dir(path)
	} else {
		return nil, errors.New("no PostgreSQL here: install the package postgresql")
	}
	if os.Geteuid() != 0 {
		return p, nil
	}
	p.prefix = []string{"runuser", "-u", "postgres", "--"}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return nil, err
	}
	return p, os.Chown(dir, uid, -1)
}

func (p *postgres) command(name string, args ...string) error {
	argv := append(append([]string(nil), p.prefix...), filepath.Join(p.bin, name))
	cmd := exec.Command(argv[0], append(argv[1:], args...)...)
	cmd.Dir = "/"
	// Not a pipe: the server that pg_ctl starts would keep it open.
	out, err := os.CreateTemp("", name)
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(out.Name())
		return fmt.Errorf("%s: %w: %s", name, err, text)
	}
	return nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
