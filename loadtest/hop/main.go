//go:build linux

// Command hop measures what a request costs in Keyway's router and in HAProxy
// and nginx, all of them on this machine, in turns, as ratios:
//
//	go run ./hop
//
// Its command soak loads all of Keyway for long, and looks whether anything grows:
//
//	go run ./hop soak -t 10m
//
// Absolute figures move from machine to machine and with whatever else runs on
// it; the ratios are what counts, and of these only differences that rounds
// agree on.
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/loadtest/internal/proc"
	"github.com/keyway-go/keyway/loadtest/internal/servers"
)

func main() { os.Exit(cli.Main("hop", run)) }

// run runs the measurement, or one of the programs that it consists of.
func run(ctx context.Context, args []string, stdout, _ io.Writer) error {
	roles := map[string]func(context.Context, []string, io.Writer) error{"load": runLoad, "origin": runOrigin, "nethttp": runNetHTTP, "soak": runSoak}
	if len(args) > 0 && roles[args[0]] != nil {
		return roles[args[0]](ctx, args[1:], stdout)
	}
	f, err := parseFlags(args, stdout)
	if err != nil {
		return err
	}
	h, err := newHop(ctx, stdout, f, "haproxy", "nginx", "redis-server")
	if err != nil {
		return err
	}
	err = h.run()
	h.close(err)
	return err
}

// hop is the measurement.
type hop struct {
	flags
	ctx     context.Context
	dir     string // of configurations and logs
	stage   *proc.Stage
	out     io.Writer
	place   place
	redis   string // host:port
	with    features
	env     []string              // of routers and sidecars
	keep    bool                  // the logs, whatever the outcome
	running map[string]*proxy     // by contestant and front
	origins map[string]*upstreams // by kind
	doors   map[string][]*door    // by cluster
}

// place says which cores are for what.
type place struct{ proxy, others []int }

// newHop makes a directory and builds the programs that were not given. The
// caller must call close. needed are programs of others.
func newHop(ctx context.Context, out io.Writer, f flags, needed ...string) (*hop, error) {
	for _, program := range needed {
		if proc.Find(program) == "" {
			return nil, fmt.Errorf("%s is not installed. As root: scripts/deps %s (Debian's packages)", program, strings.Join(needed, " "))
		}
	}
	dir, err := os.MkdirTemp("", "keyway-hop-")
	if err != nil {
		return nil, err
	}
	h := &hop{flags: f, ctx: ctx, dir: dir, stage: proc.NewStage(dir), out: out, running: make(map[string]*proxy), origins: make(map[string]*upstreams), doors: make(map[string][]*door)}
	if err := os.Chmod(dir, 0o755); err != nil { // nginx's workers are of another user
		h.close(err)
		return nil, err
	}
	if !f.bare {
		if h.with, err = allFeatures(dir); err != nil {
			h.close(err)
			return nil, err
		}
	}
	proc.RaiseFileLimit()
	if h.programs.Router == "" || h.programs.Worker == "" {
		fmt.Fprintln(out, "building …")
		programs, err := cluster.Build(ctx, dir)
		if err != nil {
			h.close(err)
			return nil, err
		}
		h.programs.Router = cmp.Or(h.programs.Router, programs.Router)
		h.programs.Worker = cmp.Or(h.programs.Worker, programs.Worker)
	}
	return h, nil
}

// close stops everything. The logs stay if there was an error, or if they are to be kept.
func (h *hop) close(err error) {
	h.stage.Close()
	if (err != nil || h.keep) && h.ctx.Err() == nil {
		fmt.Fprintln(h.out, "logs:", h.dir)
		return
	}
	os.RemoveAll(h.dir)
}

// childEnv makes this program run as one of the programs of a measurement when
// it is a test.
const childEnv = "HOP_CHILD=1"

// self describes a process that runs this program, on the cores for others than
// the proxy.
func (h *hop) self(name string, args ...string) (proc.Spec, error) {
	program, err := os.Executable()
	return proc.Spec{Name: name, Program: program, Args: args, Env: []string{childEnv}, CPUs: h.place.others}, err
}

// originEnv lets the Go runtime of the upstreams collect garbage less often than
// it does by default with so small a heap: HAProxy's and nginx's make none, and
// they share a core with the load generator, whose latencies it would disturb.
const originEnv = "GOGC=400"

// startOrigin starts the upstreams and returns their addresses.
func (h *hop) startOrigin(name string, args ...string) (*proc.Process, []string, error) {
	spec, err := h.self(name, append([]string{"origin"}, args...)...)
	if err != nil {
		return nil, nil, err
	}
	spec.Env = append(spec.Env, originEnv)
	spec.Ready = "ready "
	p, err := h.stage.Start(h.ctx, spec)
	if err != nil {
		return nil, nil, err
	}
	_, rest, _ := strings.Cut(p.ReadyLine(), "ready ")
	return p, strings.Fields(rest), nil
}

// startRedis starts a redis-server, on the cores for others than the proxy, and
// returns its address.
func (h *hop) startRedis() (addr string, err error) {
	spec, err := servers.Redis("redis", h.dir)
	if err != nil {
		return "", err
	}
	spec.CPUs = h.place.others
	_, err = h.stage.Start(h.ctx, spec)
	return spec.Dial, err
}

// router is a running cmd/router.
type router struct {
	*proc.Process
	listen, gossip string
}

// startRouter starts the first router of a cluster, or another one, on the cores.
// It takes as many connections as its rivals.
func (h *hop) startRouter(name, program, clusterName string, cpus []int, args ...string) (*router, error) {
	args = append([]string{"--max-connections", strconv.FormatUint(maxConnections(), 10)}, args...)
	spec := servers.Router(name, program, clusterName, h.redis, append(args, h.with.routerArgs()...)...)
	spec.CPUs, spec.Env = cpus, h.env
	p, err := h.stage.Start(h.ctx, spec)
	if err != nil {
		return nil, err
	}
	r := &router{Process: p}
	r.listen, r.gossip = servers.Addrs(p)
	return r, nil
}
