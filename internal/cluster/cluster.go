// Package cluster builds Keyway's programs and runs them as processes on this
// machine, for trying Keyway out, for tests and for the load test. An [Nginx] may stand before them.
package cluster

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/keyway-go/keyway/internal/cluster/proc"
)

const module = "github.com/keyway-go/keyway"

// Build compiles cmd/router and cmd/worker into dir: of the Keyway in whose
// tree the working directory lies, be it in a nested module.
func Build(ctx context.Context, dir string, flags ...string) (Programs, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Programs{}, fmt.Errorf("cluster: %w", err)
	}
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module)
	root, err := list.Output()
	if err != nil {
		return Programs{}, fmt.Errorf("cluster: looking for the module %s: %w", module, err)
	}
	for _, name := range []string{"router", "worker"} {
		if err := Compile(ctx, strings.TrimSpace(string(root)), module+"/cmd/"+name, filepath.Join(dir, name), flags...); err != nil {
			return Programs{}, err
		}
	}
	return In(dir), nil
}

// Compile compiles a package, named as the go command does in the directory from, into file, which
// is absolute. It uses go run, which keeps what it has linked; go build links anew each time.
func Compile(ctx context.Context, from, pkg, file string, flags ...string) error {
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"run", "-exec", "cp"}, flags, []string{pkg, file})...)
	cmd.Dir = from
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cluster: compiling %s: %w\n%s", pkg, err, out)
	}
	return nil
}

// Programs are the paths of the built programs.
type Programs struct{ Router, Worker string }

// In returns the programs that are in dir.
func In(dir string) Programs {
	return Programs{Router: filepath.Join(dir, "router"), Worker: filepath.Join(dir, "worker")}
}

// Process is a running router or worker.
type Process struct {
	*proc.Process
	Listen string // host:port that takes requests
	Admin  string // host:port of its admin server; may be empty
	Gossip string // host:port
}

// Start starts program and waits until it has printed that it is ready, see [proc.Start]. Its output goes to out,
// each line behind the name, in one write.
func Start(ctx context.Context, name, program string, out io.Writer, args ...string) (*Process, error) {
	p, err := proc.Start(ctx, proc.Spec{Name: name, Program: program, Out: out, Args: args, Ready: ReadyLine})
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	return Of(p), nil
}

// ReadyLine is the pattern of what cmd/router and cmd/worker print when they are ready, except for their app.
const ReadyLine = `(?:ready|waits for its app): requests (?:https?://)?([^ ,]+)[^,]*(?:, admin http://([^ ,]+))?, gossip ([^ ,]+)`

var readyLine = regexp.MustCompile(ReadyLine)

// Of returns the router or worker whose process it is, which was started with ReadyLine and is ready.
func Of(p *proc.Process) *Process {
	m := readyLine.FindStringSubmatch(p.ReadyLine())
	return &Process{p, m[1], m[2], m[3]}
}
