//go:build linux

package origin

import (
	"context"
	"log/slog"
	"net"
	"net/http"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/routes"
	"github.com/keyway-go/keyway/loadtest/internal/load"
	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/gossip"
)

// RouterConfig describes a router whose clients net/http serves, over HTTP/2.
type RouterConfig struct {
	Cluster   string
	Join      string // gossip address of another router
	GossipKey string // in hex; empty for none
	Routes    string // file; empty for keys in load.HeaderKey
}

// ServeNetHTTP is such a router until ctx ends. ready gets where it takes requests, and gossip.
func ServeNetHTTP(ctx context.Context, cfg RouterConfig, ready func(listen, gossip string)) error {
	key, err := gateway.ParseKeySource("header:" + load.HeaderKey)
	if err != nil {
		return err
	}
	table := routes.ForKeys(gateway.KeySources{key}, routes.WithoutKey{})
	if cfg.Routes != "" {
		if table, err = routes.Load(cfg.Routes); err != nil {
			return err
		}
	}
	keys, err := keyring(cfg.GossipKey)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	logger := slog.New(slog.DiscardHandler)
	members, err := gossip.Start(ctx, gossip.Config{
		Settings: ring.Settings{Cluster: cfg.Cluster, KeySource: table.KeySource()},
		Self:     ring.Member{Name: "router-nethttp", Role: ring.RoleRouter, State: ring.StateActive, Addr: l.Addr().String()},
		Bind:     "127.0.0.1:0",
		Seeds:    []string{cfg.Join},
		Keyring:  keys,
		Logger:   logger,
	})
	if err != nil {
		return err
	}
	defer members.Close()
	rt, err := router.New(router.Config{Members: members, Routes: table, Logger: logger})
	if err != nil {
		return err
	}
	defer rt.Close()
	server := &http.Server{Handler: rt, Protocols: new(http.Protocols)}
	server.Protocols.SetUnencryptedHTTP2(true)
	defer context.AfterFunc(ctx, func() { server.Close() })()
	ready(l.Addr().String(), members.Addr())
	if err := server.Serve(l); ctx.Err() == nil {
		return err
	}
	return nil
}
