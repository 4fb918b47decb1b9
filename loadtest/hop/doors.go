//go:build linux

package main

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/keyway-go/keyway/loadtest/internal/proc"
	"github.com/keyway-go/keyway/loadtest/internal/servers"
)

// door is a sidecar that takes requests from clients.
type door struct {
	*proc.Process
	listen, gossip string
}

// startDoors starts the doors of a cluster; each is alone in a cluster of its own, and so
// the owner of all keys, if that is "".
func (h *hop) startDoors(cluster string) (all []*door, err error) {
	args := []string{"--public", "127.0.0.1:0"}
	if h.with.routes != "" {
		args = append(args, "--routes", h.with.routes)
	}
	for i := range instances {
		name, join := "door-"+cluster+strconv.Itoa(i+1), ""
		if cluster != "" && i > 0 {
			join = all[0].gossip
		}
		p, err := h.startSidecar(name, h.programs.Worker, cmp.Or(cluster, name), join, args...)
		if err != nil {
			return nil, err
		}
		d := &door{Process: p}
		d.listen, d.gossip = servers.Addrs(p)
		all = append(all, d)
	}
	return all, nil
}

// doorsOf returns those of a cluster, which are started once.
func (h *hop) doorsOf(cluster string) (all []*door, err error) {
	if h.doors[cluster] == nil {
		h.doors[cluster], err = h.startDoors(cluster)
	}
	return h.doors[cluster], err
}

// doorsProxy starts what stands before doors, or before a router of their cluster.
func (h *hop) doorsProxy(name string) (p *proxy, err error) {
	cluster := "doors"
	if name == doorsOwner || name == doorAlone {
		cluster = ""
	}
	doors, err := h.doorsOf(cluster)
	if err != nil {
		return nil, err
	}
	if name == doorAlone {
		return &proxy{process: doors[0].Process, addr: map[front]string{frontHTTP: doors[0].listen}}, nil
	}
	var upstreams []string
	var behind []*proc.Process
	for _, d := range doors {
		upstreams, behind = append(upstreams, d.listen), append(behind, d.Process)
	}
	if name == doorsRouter {
		upstreams = nil
		for i := range 2 { // as many as in deploy/
			r, err := h.startRouter("router-doors"+strconv.Itoa(i+1), h.programs.Router, cluster, h.place.proxy, "--join", doors[0].gossip)
			if err != nil {
				return nil, err
			}
			upstreams, behind = append(upstreams, r.listen), append(behind, r.Process)
		}
	}
	p, err = h.startNginx(strings.NewReplacer(" ", "-", ",", "", "'", "").Replace(name), false, upstreams)
	if err == nil {
		p.behind = behind
	}
	return p, err
}
