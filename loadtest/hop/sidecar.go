//go:build linux

package main

import (
	"path/filepath"

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

// sidecarProxy starts a sidecar, alone in a cluster, and a router before it on the others'
// core.
func (h *hop) sidecarProxy(program, cluster string) (*proxy, error) {
	r, err := h.startRouter("router-"+cluster, h.programs.Router, cluster, h.place.others)
	if err != nil {
		return nil, err
	}
	p, err := h.startSidecar("worker-"+cluster, program, cluster, r.gossip)
	if err != nil {
		return nil, err
	}
	front := routerProxy(r, frontHTTP)
	return &proxy{process: p, addr: front.addr, beside: []*proc.Process{r.Process}}, nil
}
