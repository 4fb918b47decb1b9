//go:build linux

package servers

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/loadtest/internal/proc"
)

// Site is a router and workers that run, with their Redis.
type Site struct {
	Router  *cluster.Process
	Workers []*proc.Process // w0, w1, …

	stage  *proc.Stage
	groups []string // directories of cgroups
}

// NewSite starts a site. Each of its workers has so many cores, which needs root, or all if cores is 0. Further flags are for
// all members, and for workers. The caller must close it.
func NewSite(ctx context.Context, name string, programs cluster.Programs, workers int, cores float64, all, worker []string) (*Site, error) {
	stage, err := proc.NewStage(name)
	if err != nil {
		return nil, err
	}
	s := &Site{stage: stage}
	if err := s.start(ctx, name, programs, workers, cores, all, append(worker, all...)); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Site) start(ctx context.Context, name string, programs cluster.Programs, workers int, cores float64, routerArgs, workerArgs []string) error {
	store, err := StartRedis(ctx, s.stage, "redis")
	if err != nil {
		return err
	}
	router, err := s.stage.Start(ctx, Router("router", programs.Router, name, store.Dial, routerArgs...))
	if err != nil {
		return err
	}
	s.Router = cluster.Of(router)
	for i := range workers {
		w, err := s.stage.Start(ctx, Worker(fmt.Sprint("w", i), programs.Worker, name, store.Dial, s.Router.Gossip, workerArgs...))
		if err != nil {
			return err
		}
		s.Workers = append(s.Workers, w)
		if cores > 0 {
			if err := s.limit(w, cores); err != nil {
				return fmt.Errorf("a cgroup for a worker: %w", err)
			}
		}
	}
	return nil
}

// Close ends the site.
func (s *Site) Close() {
	s.stage.Close()
	for _, dir := range s.groups {
		_ = os.Remove(dir) // it is empty now
	}
}

// period is that of a quota, in µs: that of containers by default.
const period = 100_000

// limit puts a process into a new cgroup, of version 1 or 2, that has so many cores.
func (s *Site) limit(w *proc.Process, cores float64) error {
	root, name, quota := "/sys/fs/cgroup", "cpu.max", fmt.Sprintf("%.0f %d", cores*period, period)
	if _, err := os.Stat(filepath.Join(root, "cpu")); err == nil {
		root, name, quota = filepath.Join(root, "cpu"), "cpu.cfs_quota_us", fmt.Sprintf("%.0f", cores*period)
	}
	dir, err := os.MkdirTemp(root, "keyway-load-")
	if err != nil {
		return err
	}
	s.groups = append(s.groups, dir)
	err = os.WriteFile(filepath.Join(dir, name), []byte(quota), 0o600)
	return cmp.Or(err, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(w.Pid())), 0o600))
}
