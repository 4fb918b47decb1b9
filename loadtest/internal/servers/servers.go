//go:build linux

// Package servers describes the processes that stand around what is measured,
// such as Redis and Keyway's router, and asks them what they have done.
//
// Files: servers.go, metrics.go; site.go has a router and workers with their Redis.
package servers

import (
	"context"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/loadtest/internal/proc"
)

// Redis describes a redis-server that keeps nothing on the disk. Its Dial is a
// free address that it will listen on.
func Redis(name, dir string) (proc.Spec, error) {
	addr, err := proc.FreeAddr()
	if err != nil {
		return proc.Spec{}, err
	}
	_, port, _ := strings.Cut(addr, ":")
	return proc.Spec{
		Name: name, Program: proc.Find("redis-server"), Dial: addr,
		Args: []string{"--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"},
	}, nil
}

// StartRedis starts a redis-server on a stage.
func StartRedis(ctx context.Context, stage *proc.Stage, name string) (*proc.Process, error) {
	spec, err := Redis(name, stage.Dir)
	if err != nil {
		return nil, err
	}
	return stage.Start(ctx, spec)
}

// Calls returns how often the Redis at host:port has executed which command.
func Calls(ctx context.Context, addr string) (map[string]int64, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	info, err := client.Info(ctx, "commandstats").Result()
	return parseCalls(info), err
}

// parseCalls reads the section commandstats of INFO.
func parseCalls(info string) map[string]int64 {
	calls := make(map[string]int64)
	for line := range strings.Lines(info) {
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if n, _, _ := strings.Cut(rest, ","); ok {
			calls[name], _ = strconv.ParseInt(n, 10, 64) // the server writes numbers
		}
	}
	return calls
}

// Open makes a stage of that name, with the programs that are in dir, or built there if dir is "". The caller must close
// the stage.
func Open(ctx context.Context, name, dir string) (*proc.Stage, cluster.Programs, error) {
	stage, err := proc.NewStage(name)
	if err != nil || dir != "" {
		return stage, cluster.In(dir), err
	}
	programs, err := cluster.Build(ctx, stage.Dir)
	if err != nil {
		stage.Close()
	}
	return stage, programs, err
}

// Etcd describes an etcd, a cluster of one, that keeps its data below dir. Its Dial is a free address that it will
// listen on.
func Etcd(name, dir string) (proc.Spec, error) {
	client, err := proc.FreeAddr()
	if err != nil {
		return proc.Spec{}, err
	}
	peer, err := proc.FreeAddr()
	if err != nil {
		return proc.Spec{}, err
	}
	clients, peers := "http://"+client, "http://"+peer
	return proc.Spec{Name: name, Program: proc.Find("etcd"), Dial: client, Args: []string{
		"--name", "one", "--data-dir", dir, "--listen-client-urls", clients, "--advertise-client-urls", clients,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "one=" + peers, "--logger", "zap",
	}}, nil
}

// Router describes a router of a cluster, the first or another one, with its
// records in the Redis at host:port. It listens on free addresses; see
// [cluster.Of].
func Router(name, program, clusterName, redis string, args ...string) proc.Spec {
	return proc.Spec{
		Name: name, Program: program, Ready: cluster.ReadyLine,
		Args: append([]string{"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--gossip", "127.0.0.1:0",
			"--redis", "redis://" + redis, "--cluster", clusterName, "--new-cluster"}, args...),
	}
}

// Worker describes a worker of a cluster, which finds the others at a gossip address, ""
// for none, with its records in the Redis at host:port. It listens on free addresses.
func Worker(name, program, clusterName, redis, join string, args ...string) proc.Spec {
	args = append([]string{"--name", name}, args...)
	if join != "" {
		args = append(args, "--join", join)
	}
	return Router(name, program, clusterName, redis, args...)
}
