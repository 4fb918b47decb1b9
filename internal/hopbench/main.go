//go:build linux

// Command hopbench measures Keyway's router against HAProxy and nginx, and
// Keyway from end to end against locks in Redis: everything on this machine,
// in turns, as ratios.
//
//	go run . hop   # what a request costs in the proxy
//	go run . e2e   # what a user gains who takes the locks away
//
// Absolute figures move from machine to machine and with whatever else runs on
// it; the ratios are what counts, and of these only differences that rounds
// agree on.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"syscall"

	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/internal/hopbench/proc"
)

func main() { os.Exit(cli.Main("hopbench", run)) }

// run runs a measurement, or one of the programs that measurements consist of.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	commands := map[string]cli.Run{"hop": runHop, "e2e": runE2E, "load": runLoad, "origin": runOrigin, "app": runApp, "reverseproxy": runReverseProxy}
	if len(args) > 0 && commands[args[0]] != nil {
		return commands[args[0]](ctx, args[1:], stdout, stderr)
	}
	return cli.Usagef("say what to measure: hop or e2e, perhaps with --help")
}

// bench is what every measurement has.
type bench struct {
	ctx    context.Context
	dir    string // of configurations and logs
	stage  *proc.Stage
	router string // path of cmd/router
	out    io.Writer
	place  place
}

// place says which cores are for what; nil means all.
type place struct{ proxy, others []int }

// newBench makes a directory and, if router is not its path, builds cmd/router.
// The caller must call close.
func newBench(ctx context.Context, out io.Writer, router string, needs ...string) (*bench, error) {
	for _, program := range needs {
		if proc.Find(program) == "" {
			return nil, fmt.Errorf("%s is not installed. As root: scripts/deps haproxy nginx redis-server (Debian's packages)", program)
		}
	}
	dir, err := os.MkdirTemp("", "keyway-hopbench-")
	if err != nil {
		return nil, err
	}
	b := &bench{ctx: ctx, dir: dir, stage: proc.NewStage(dir), router: router, out: out}
	if err := os.Chmod(dir, 0o755); err != nil { // nginx's workers are of another user
		b.close(err)
		return nil, err
	}
	raiseFileLimit()
	if router == "" {
		fmt.Fprintln(out, "building …")
		programs, err := cluster.Build(ctx, dir)
		if err != nil {
			b.close(err)
			return nil, err
		}
		b.router = programs.Router
	}
	return b, nil
}

// close stops everything. The logs stay if there was an error.
func (b *bench) close(err error) {
	b.stage.Close()
	if err != nil && b.ctx.Err() == nil {
		fmt.Fprintln(b.out, "logs:", b.dir)
		return
	}
	os.RemoveAll(b.dir)
}

// raiseFileLimit lets the processes have as many connections as the system
// allows.
func raiseFileLimit() {
	limit := syscall.Rlimit{Cur: enoughFiles, Max: enoughFiles}
	if fileLimit() < enoughFiles && syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		return
	}
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		limit.Cur = limit.Max
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit) // else it stays as it is
	}
}

const enoughFiles = 1 << 16

// fileLimit returns how many files a process may have open.
func fileLimit() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 1024
	}
	return min(limit.Cur, enoughFiles)
}

// childEnv makes this program run as one of the programs of a measurement when
// it is a test.
const childEnv = "HOPBENCH_CHILD=1"

// self describes a process that runs this program.
func (b *bench) self(name string, cpus []int, args ...string) (proc.Spec, error) {
	program, err := os.Executable()
	return proc.Spec{Name: name, Program: program, Args: args, Env: []string{childEnv}, CPUs: cpus}, err
}

// originEnv lets the Go runtime of the upstreams collect garbage less often than
// it does by default with so small a heap: HAProxy's and nginx's make none, and
// they share a core with the load generator, whose latencies it would disturb.
const originEnv = "GOGC=400"

// start starts this program in a role and returns what it prints after
// "ready ".
func (b *bench) start(name string, cpus []int, env string, args ...string) (*proc.Process, []string, error) {
	spec, err := b.self(name, cpus, args...)
	if err != nil {
		return nil, nil, err
	}
	if env != "" {
		spec.Env = append(spec.Env, env)
	}
	spec.Ready = "ready "
	p, err := b.stage.Start(b.ctx, spec)
	if err != nil {
		return nil, nil, err
	}
	_, rest, _ := strings.Cut(p.ReadyLine(), "ready ")
	return p, strings.Fields(rest), nil
}

// startRedis starts a redis-server, on the cores for others than the proxy, and
// returns its address.
func (b *bench) startRedis(name string) (p *proc.Process, addr string, err error) {
	if addr, err = proc.FreeAddr(); err != nil {
		return nil, "", err
	}
	_, port, _ := strings.Cut(addr, ":")
	p, err = b.stage.Start(b.ctx, proc.Spec{
		Name: "redis-" + name, Program: proc.Find("redis-server"), CPUs: b.place.others, Dial: addr,
		Args: []string{"--port", port, "--bind", "127.0.0.1", "--dir", b.dir, "--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"},
	})
	return p, addr, err
}

// router is a running cmd/router.
type router struct {
	*proc.Process
	listen, gossip string
}

var readyLine = regexp.MustCompile(`ready: requests https?://([^ ,]+), .*gossip ([^ ,]+)`)

// startRouter starts the first router of a cluster, or another one.
func (b *bench) startRouter(name, program, clusterName, redis string, args ...string) (*router, error) {
	p, err := b.stage.Start(b.ctx, proc.Spec{
		Name: name, Program: program, CPUs: b.place.proxy, Ready: "router ready",
		Args: append([]string{"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--gossip", "127.0.0.1:0",
			"--redis", "redis://" + redis, "--cluster", clusterName, "--new-cluster"}, args...),
	})
	if err != nil {
		return nil, err
	}
	m := readyLine.FindStringSubmatch(p.ReadyLine())
	if m == nil {
		return nil, fmt.Errorf("the router's line is not understood: %q", p.ReadyLine())
	}
	return &router{p, m[1], m[2]}, nil
}
