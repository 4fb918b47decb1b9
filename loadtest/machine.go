//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/keyway-go/keyway/loadtest/internal/proc"
	"github.com/keyway-go/keyway/loadtest/internal/report"
)

// machine describes this one.
func machine() report.Machine {
	m := report.Machine{Cores: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH}
	fs, _ := procfs.NewDefaultFS() // what cannot be read is left out
	if cpus, err := fs.CPUInfo(); err == nil && len(cpus) > 0 {
		m.CPU = cpus[0].ModelName
	}
	if memory, err := fs.Meminfo(); err == nil && memory.MemTotalBytes != nil {
		m.MemoryGB = float64(*memory.MemTotalBytes*10>>30) / 10
	}
	if load, err := fs.LoadAvg(); err == nil {
		m.Load = load.Load1
	}
	release, _ := os.ReadFile("/etc/os-release")
	if _, name, ok := bytes.Cut(release, []byte(`PRETTY_NAME="`)); ok {
		name, _, _ = bytes.Cut(name, []byte(`"`))
		m.System = string(name) + ", " + m.System
	}
	var kernel unix.Utsname
	if unix.Uname(&kernel) == nil {
		m.System += ", Linux " + unix.ByteSliceToString(kernel.Release[:])
	}
	return m
}

// requirement is what a run needs beside Go.
type requirement struct {
	pkg   string   // as Debian calls it
	paths []string // of its programs; "" for one that is not installed
}

// requirements are those of the servers that the run starts.
func (o *options) requirements() (all []requirement) {
	all = append(all, requirement{"redis-server", []string{proc.Find("redis-server")}})
	for name, kind := range storeKinds() {
		if slices.ContainsFunc(o.chosen, func(c contender) bool { return slices.Contains(stores(c, o.scenes), name) }) {
			all = append(all, requirement{kind.pkg, kind.programs()})
		}
	}
	if slices.ContainsFunc(o.chosen, func(c contender) bool { return !c.keyway() }) {
		all = append(all, requirement{"nginx", []string{proc.Find("nginx")}})
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
	return fmt.Errorf("not installed: %s. As root: scripts/deps %[1]s (Debian's packages); or leave out the --contenders and --workloads that need them", strings.Join(packages, " "))
}

// rivals are the modules whose versions a report names.
var rivals = []string{
	"github.com/redis/go-redis/v9", "github.com/go-redsync/redsync/v4", "github.com/bsm/redislock", "github.com/redis/rueidis",
	"github.com/jackc/pgx/v5", "github.com/go-sql-driver/mysql", "go.etcd.io/etcd/client/v3", "github.com/go-zookeeper/zk",
}

// versions are those of modules and, where Debian's packages are used, of these.
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
	query := []string{"--show", "--showformat", "${Package} ${Version}\n"}
	for _, r := range all {
		query = append(query, r.pkg)
	}
	out, _ := exec.CommandContext(ctx, "dpkg-query", query...).Output() // it fails if it knows some not
	for line := range strings.Lines(string(out)) {
		name, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		v[name] = version
	}
	return v
}

// Warnings are given above these shares.
const (
	busyGenerator = 0.5 // of a core
	busyMachine   = 0.5 // of all cores, before the run
)

// warnings are what makes results doubtful.
func warnings(r *report.Report) (all []string) {
	for _, s := range r.Scenes {
		for _, row := range s.Rows {
			if share := row.Median(report.Generator); share > busyGenerator {
				all = append(all, fmt.Sprintf("%s, %s: the load generator, which has one thread, was busy for %.0f %% of the time: it may limit this contender", s.Name, row.Contender, 100*share))
			}
			for _, m := range row.Marks {
				if end := row.Turns[len(row.Turns)-1][report.Seconds]; m.Done > end {
					all = append(all, fmt.Sprintf("%s, %s: %s lasted beyond the measured time, until %.1f s: give it more --time", s.Name, row.Contender, m.What, m.Done))
				}
			}
		}
	}
	if r.Machine.Load > busyMachine*float64(r.Machine.Cores) {
		all = append(all, fmt.Sprintf("the machine was busy before the run (load %.1f on %d cores): only ratios count, if anything", r.Machine.Load, r.Machine.Cores))
	}
	return all
}
