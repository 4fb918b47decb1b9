//go:build linux

package main

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/keyway-go/keyway/loadtest/internal/proc"
)

// requirement is what a run needs beside Go.
type requirement struct {
	name, pkg string   // as it is called, and by Debian
	paths     []string // "" for one that is not installed
	version   []string // command that prints it
}

// requirements are those of the servers that the run starts.
func (o *options) requirements() (all []requirement) {
	if o.given[storeRedis] == "" {
		path := proc.Find("redis-server")
		all = append(all, requirement{storeRedis, "redis-server", []string{path}, []string{path, "--version"}})
	}
	for name, kind := range storeKinds() {
		if o.given[name] == "" && slices.ContainsFunc(o.chosen, func(c contender) bool { return slices.Contains(stores(c, o.scenes), name) }) {
			all = append(all, requirement{name, kind.pkg, kind.programs(), kind.version()})
		}
	}
	if slices.ContainsFunc(o.chosen, func(c contender) bool { return !c.keyway() }) {
		path := proc.Find("nginx")
		all = append(all, requirement{"nginx", "nginx", []string{path}, []string{path, "-v"}})
	}
	return all
}

// missing returns an error that says what is not installed.
func missing(all []requirement) error {
	var packages []string
	for _, r := range all {
		if slices.Contains(r.paths, "") {
			packages = append(packages, r.pkg)
		}
	}
	if len(packages) == 0 {
		return nil
	}
	slices.Sort(packages)
	return fmt.Errorf("not installed: %s. As root: scripts/deps %[1]s (Debian's packages); or leave out the --contenders and --work that need them", strings.Join(packages, " "))
}

// rivals are the modules whose versions a report names.
var rivals = []string{
	"github.com/redis/go-redis/v9", "github.com/go-redsync/redsync/v4", "github.com/bsm/redislock", "github.com/redis/rueidis",
	"github.com/jackc/pgx/v5", "github.com/go-sql-driver/mysql", "go.etcd.io/etcd/client/v3", "github.com/go-zookeeper/zk",
}

// versions are those of programs and modules.
func versions(ctx context.Context, all []requirement) map[string]string {
	v := map[string]string{"go": runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if slices.Contains(rivals, d.Path) {
				v[d.Path] = d.Version
			}
		}
	}
	if out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output(); err == nil { // else it is no checkout
		v["keyway"] = strings.TrimSpace(string(out))
	}
	for _, r := range all {
		if out, err := exec.CommandContext(ctx, r.version[0], r.version[1:]...).CombinedOutput(); err == nil {
			line, _, _ := strings.Cut(string(out), "\n")
			line, _, _ = strings.Cut(line, " sha=") // Redis says much more
			v[r.name] = strings.TrimPrefix(line, "nginx version: ")
		}
	}
	return v
}
