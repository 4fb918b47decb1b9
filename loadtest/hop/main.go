//go:build linux

// Command hop measures what a request costs in Keyway's router and in HAProxy
// and nginx, all of them on this machine, in turns, as ratios:
//
//	go run ./hop
//
// If turns take a minute or more, it fails if a proxy needs more and more memory, or open files.
//
// Absolute figures move from machine to machine and with whatever else runs on
// it; the ratios are what counts, and of these only differences that rounds
// agree on.
//
// Files, from the command inwards: main.go, hop.go with the scenarios, proxies.go, upstreams.go, features.go,
// growth.go.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/loadtest/internal/proc"
	"github.com/keyway-go/keyway/loadtest/internal/servers"
)

func main() { os.Exit(cli.Main("hop", run)) }

// run runs the measurement, or one of the programs that it consists of.
func run(ctx context.Context, args []string, stdout, _ io.Writer) error {
	if len(args) > 0 && args[0] == "upstreams" {
		return runUpstreams(ctx, args[1:], stdout)
	}
	f, err := parseFlags(args, stdout)
	if err != nil {
		return err
	}
	h, err := newHop(ctx, stdout, f)
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
	programs       cluster.Programs
	ctx            context.Context
	stage          *proc.Stage
	out            io.Writer
	place          place
	redis          string // host:port
	with           features
	clients        []*keyway.Client
	grows          error                         // of a proxy that does
	maxConnections uint64                        // of a proxy
	running        map[string][]*proxy           // by contestant, for different fronts
	origins        map[string]*upstreams         // by kind
	doors          map[string][]*cluster.Process // by cluster
}

// place says which cores are for what; nil for all.
type place struct{ proxy, others []int }

// newHop makes a directory and builds the programs that were not given. The
// caller must call close.
func newHop(ctx context.Context, out io.Writer, f flags) (*hop, error) {
	for _, program := range []string{"haproxy", "nginx", "redis-server"} {
		if proc.Find(program) == "" {
			return nil, fmt.Errorf("%s is not installed. As root: scripts/deps haproxy nginx redis-server (Debian's packages)", program)
		}
	}
	if f.programsDir == "" {
		fmt.Fprintln(out, "building …")
	}
	stage, programs, err := servers.Open(ctx, "hop", f.programsDir)
	if err != nil {
		return nil, err
	}
	return &hop{
		flags: f, programs: programs, ctx: ctx, stage: stage, out: out, maxConnections: stage.Files * 6 / 10, // an idle one needs one file, a busy one two
		running: make(map[string][]*proxy), origins: make(map[string]*upstreams), doors: make(map[string][]*cluster.Process),
	}, nil
}

// prepare makes what members and proxies are measured with, and starts their Redis.
func (h *hop) prepare() (err error) {
	if !h.bare {
		if h.with, err = allFeatures(h.stage.Dir); err != nil {
			return err
		}
	}
	if err := writeCertificate(h.stage.Dir); err != nil {
		return err
	}
	store, err := servers.StartRedis(h.ctx, h.stage, "redis")
	if err != nil {
		return err
	}
	h.redis = store.Dial
	return nil
}

// close stops everything. The logs stay if there was an error.
func (h *hop) close(err error) {
	if h.stage.Keep = err != nil && h.ctx.Err() == nil; h.stage.Keep {
		fmt.Fprintln(h.out, "logs:", h.stage.Dir)
	}
	for _, c := range h.clients {
		_ = c.Close()
	}
	h.stage.Close()
}
