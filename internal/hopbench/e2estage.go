//go:build linux

package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/keyway-go/keyway/internal/hopbench/proc"
)

// maxKeys is the number of keys of the largest workload.
func maxKeys() (n int) {
	for _, w := range workloads() {
		n = max(n, w.keys)
	}
	return n
}

// startStack starts a stack, with a redis-server of its own so that its CPU
// time can be told from others'.
func (e *e2e) startStack(s stack) (*runningStack, error) {
	r := &runningStack{stack: s}
	file := filepath.Join(e.dir, "counters-"+s.id)
	var err error
	if r.counters, err = openCounters(file, maxKeys()); err != nil {
		return nil, err
	}
	var redis string
	if r.redis, redis, err = e.startRedis(s.id); err != nil {
		return nil, err
	}
	args := []string{"app", "--lock", s.lock, "--redis", redis, "--poll", e.poll.String(), "--wait", e.wait.String(), "--counters", file, "--keys", strconv.Itoa(len(r.counters))}
	if s.front == frontRouter {
		err = e.startCluster(r, redis, args)
	} else {
		err = e.startPlain(r, args)
	}
	if err != nil {
		return nil, err
	}
	return r, probe(r.addr, false)
}

// startCluster starts a router and workers.
func (e *e2e) startCluster(r *runningStack, redis string, args []string) error {
	router, err := e.startRouter("router-"+r.id, e.bench.router, r.id, redis)
	if err != nil {
		return err
	}
	r.proxy, r.addr = router.Process, router.listen
	_, err = e.startApps(r, append(args, "--cluster", r.id, "--join", router.gossip))
	return err
}

// startApps starts all apps at once and returns their addresses.
func (e *e2e) startApps(r *runningStack, args []string) ([]string, error) {
	r.apps = make([]*proc.Process, instances)
	addrs := make([]string, instances)
	var starting errgroup.Group
	for i := range instances {
		starting.Go(func() error {
			p, printed, err := e.start(fmt.Sprintf("app-%s-%d", r.id, i+1), nil, "", append(slices.Clip(args), "--name", "w"+strconv.Itoa(i+1))...)
			if err == nil {
				r.apps[i], addrs[i] = p, printed[0]
			}
			return err
		})
	}
	return addrs, starting.Wait()
}

// startPlain starts apps and something else than a router in front of them.
func (e *e2e) startPlain(r *runningStack, args []string) error {
	addrs, err := e.startApps(r, args)
	if err != nil {
		return err
	}
	if r.front == frontReverseProxy {
		p, addr, err := e.start("proxy-"+r.id, nil, "", append([]string{"reverseproxy"}, addrs...)...)
		if err != nil {
			return err
		}
		r.proxy, r.addr = p, addr[0]
		return nil
	}
	p, err := e.startNginx("nginx-"+r.id, &rivalConfig{Upstreams: addrs, Keepalive: 256, Workers: "auto", Hash: r.front == frontHash})
	if err != nil {
		return err
	}
	r.proxy, r.addr = p.process, p.addr[frontHTTP]
	return nil
}
