//go:build linux

package main

import (
	"path/filepath"

	"github.com/keyway-go/keyway/loadtest/internal/proc"
	"github.com/keyway-go/keyway/loadtest/internal/servers"
)

// appSocket is where the app of kindApp listens.
func (h *hop) appSocket() string { return filepath.Join(h.dir, "app.sock") }

// startSidecar starts a sidecar, alone in a cluster, on the proxies' core, and a router
// before it on the others'.
func (h *hop) startSidecar(program, cluster string) (*proxy, error) {
	r, err := h.startRouter("router-"+cluster, h.programs.Router, cluster, h.place.others)
	if err != nil {
		return nil, err
	}
	spec := servers.Worker("worker-"+cluster, program, cluster, h.redis, r.gossip,
		append(h.with.memberArgs(), "--upstream", "unix://"+h.appSocket())...)
	spec.CPUs = h.place.proxy
	p, err := h.stage.Start(h.ctx, spec)
	if err != nil {
		return nil, err
	}
	front := routerProxy(r, frontHTTP)
	return &proxy{process: p, addr: front.addr, beside: []*proc.Process{r.Process}}, nil
}
