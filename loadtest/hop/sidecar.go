//go:build linux

package main

import (
	"context"
	"path/filepath"

	"github.com/keyway-go/keyway/loadtest/internal/load"
	"github.com/keyway-go/keyway/loadtest/internal/proc"
	"github.com/keyway-go/keyway/loadtest/internal/servers"
)

// appSocket is where the app of kindApp listens.
func (h *hop) appSocket() string { return filepath.Join(h.dir, "app.sock") }

// startSidecar starts a sidecar of a cluster before the app of kindApp, on the proxies'
// core.
func (h *hop) startSidecar(name, program, cluster, gossip string) (*proc.Process, error) {
	spec := servers.Worker(name, program, cluster, h.redis, gossip, append(h.with.memberArgs(), "--upstream", "unix://"+h.appSocket())...)
	spec.CPUs, spec.Env = h.place.proxy, h.env
	return h.stage.Start(h.ctx, spec)
}

// sidecarProxy starts a sidecar, alone in a cluster, to which the load generator speaks
// as its router does.
func (h *hop) sidecarProxy(program, cluster string) (*proxy, error) {
	p, err := h.startSidecar("worker-"+cluster, program, cluster, "")
	if err != nil {
		return nil, err
	}
	listen, _ := servers.Addrs(p)
	return &proxy{process: p, addr: map[front]string{frontLink: listen}, link: h.with.link(cluster)}, nil
}

// awaitLink waits until requests over the link are answered.
func (h *hop) awaitLink(p *proxy) error {
	ctx, cancel := context.WithTimeout(h.ctx, servers.AnswerPatience)
	defer cancel()
	return load.AwaitLink(ctx, load.Config{Addr: p.addr[frontLink], Link: p.link, Mix: load.Mix{Path: "/1"}}, probedKeys())
}
