// Package postgres makes PostgreSQLs that are thrown away, with the defaults: a commit is on the disk.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/keyway-go/keyway/internal/cluster/proc"
)

// Programs returns the paths of initdb and postgres. The path of a missing program is empty.
func Programs() []string { return []string{find("initdb"), find("postgres")} }

// find looks in PATH last: Debian has the programs in directories by version.
func find(program string) string {
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin/", "/opt/homebrew/opt/postgresql@*/bin/"} {
		if paths, _ := filepath.Glob(pattern + program); len(paths) > 0 {
			return paths[len(paths)-1]
		}
	}
	path, _ := exec.LookPath(program)
	return path
}

// ErrMissing means that PostgreSQL is not installed.
var ErrMissing = errors.New("PostgreSQL is not installed (Debian: apt-get install postgresql; macOS: brew install postgresql)")

// Make makes a database in dir, whose user is postgres, and describes its server, which takes further arguments. PostgreSQL
// refuses root, so if this process is root's, dir and the server are the system's user postgres'.
func Make(ctx context.Context, dir string, args ...string) (spec proc.Spec, err error) {
	if slices.Contains(Programs(), "") {
		return spec, ErrMissing
	}
	if os.Geteuid() == 0 {
		if out, err := exec.CommandContext(ctx, "chown", "postgres:postgres", dir).CombinedOutput(); err != nil {
			return spec, fmt.Errorf("chown: %w: %s", err, out)
		}
	}
	data := filepath.Join(dir, "data")
	program, flags := asServer("initdb", "--pgdata", data, "--username", "postgres", "--auth", "trust", "--no-sync")
	initdb := exec.CommandContext(ctx, program, flags...)
	initdb.Dir = dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return spec, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	spec.Name, spec.Ready = "PostgreSQL", "ready to accept connections"
	spec.Program, spec.Args = asServer("postgres", append([]string{"-D", data, "-c", "lc_messages=C"}, args...)...)
	return spec, nil
}

// asServer returns a command of the server's user.
func asServer(program string, args ...string) (string, []string) {
	program = find(program)
	if os.Geteuid() != 0 {
		return program, args
	}
	return "setpriv", append([]string{"--reuid=postgres", "--regid=postgres", "--clear-groups", "--pdeathsig=TERM", program}, args...)
}
