//go:build linux

package main

import (
	"context"
	"flag"
	"fmt"
	"io"

	"github.com/keyway-go/keyway/loadtest/hop/internal/origin"
	"github.com/keyway-go/keyway/loadtest/internal/servers"
)

// netHTTPProxy starts a router of a cluster whose clients net/http serves, on the proxies' core.
func (h *hop) netHTTPProxy(u *upstreams) (*proxy, error) {
	spec, err := h.self("router-nethttp", append([]string{"nethttp", "--cluster", kindLink, "--join", u.router.gossip}, h.with.routerArgs()...)...)
	if err != nil {
		return nil, err
	}
	spec.CPUs, spec.Ready = h.place.proxy, "router ready"
	p, err := h.stage.Start(h.ctx, spec)
	if err != nil {
		return nil, err
	}
	listen, _ := servers.Addrs(p)
	return &proxy{process: p, addr: map[front]string{frontHTTP2: listen}}, nil
}

// runNetHTTP is such a router.
func runNetHTTP(ctx context.Context, args []string, stdout io.Writer) error {
	var cfg origin.RouterConfig
	flags := flag.NewFlagSet("nethttp", flag.ContinueOnError)
	flags.StringVar(&cfg.Cluster, "cluster", "", "name of the cluster")
	flags.StringVar(&cfg.Join, "join", "", "gossip address of a router")
	flags.StringVar(&cfg.GossipKey, "gossip-key", "", "key of gossip, in hex")
	flags.StringVar(&cfg.Routes, "routes", "", "file of routes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return origin.ServeNetHTTP(ctx, cfg, func(listen, gossip string) {
		fmt.Fprintf(stdout, "router ready: requests http://%s, gossip %s\n", listen, gossip)
	})
}
