//go:build linux

// Package servers describes the processes that stand around what is measured:
// Redis, Keyway's router, and nginx as a load balancer.
package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"time"

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

// Etcd describes an etcd, a cluster of one, that keeps its data below dir and listens for clients and for peers, each
// at host:port.
func Etcd(dir, client, peer string) proc.Spec {
	client, peer = "http://"+client, "http://"+peer
	return proc.Spec{Program: proc.Find("etcd"), Args: []string{
		"--name", "one", "--data-dir", filepath.Join(dir, "data"), "--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "one=" + peer, "--logger", "zap",
	}}
}

// Router describes a router of a cluster, the first or another one, with its
// records in the Redis at host:port. It listens on free addresses; see
// [Addrs].
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

// Addrs returns where a router or worker takes requests and gossip, each as
// host:port.
func Addrs(p *proc.Process) (listen, gossip string) {
	of := cluster.Of(p.Process)
	return of.Listen, of.Gossip
}

// AnswerPatience is how long [AwaitAnswers] waits.
const AnswerPatience = 60 * time.Second

var errNoAnswer = fmt.Errorf("not all keys are answered within %v", AnswerPatience)

// AwaitAnswers asks url for each of the keys, in the header, until all of them
// in a row are answered with 200.
func AwaitAnswers(ctx context.Context, client *http.Client, url, header string, keys []string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, AnswerPatience, errNoAnswer)
	defer cancel()
	defer client.CloseIdleConnections()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for good := 0; good < len(keys); {
		err := get(ctx, client, url, header, keys[good])
		if err == nil {
			good++
			continue
		}
		good = 0
		select {
		case <-poll.C:
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
	return nil
}

func get(ctx context.Context, client *http.Client, url, header, key string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	r.Header.Set(header, key)
	res, err := client.Do(r)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, res.Body) // so that the connection is used again
	if err = errors.Join(err, res.Body.Close()); err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s", url, res.Status)
	}
	return err
}
