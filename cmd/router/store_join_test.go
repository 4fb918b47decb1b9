package main

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/internal/offered"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/gossip"
)

// A router that is started where a node of package keyway keeps the machine's
// store uses that, and offers none.
func TestJoinsWhoKeepsTheStore(t *testing.T) {
	at := kit.FreeAddr(t)
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	join := func() (*backend, *gossip.Cluster, error) {
		t.Helper()
		s, err := openStore(t.Context(), new(options), logger)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.close)
		members, err := s.join(t.Context(), gossip.Config{
			Self: ring.Member{Name: "router", Role: ring.RoleRouter, State: ring.StateActive}, Bind: at, Logger: logger,
		}, false, at)
		if err == nil {
			t.Cleanup(func() { members.Close() })
		}
		return s, members, err
	}
	host, err := offered.StartHost(t.Context(), offered.HostConfig{Name: "node", Addr: at, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	s, members, err := join()
	if err != nil {
		t.Fatal(err)
	}
	if members.Self().Store != "" || s.embedded != nil || members.Addr() == at {
		t.Errorf("the router at %s offers %q", members.Addr(), members.Self().Store)
	}
	if gen, err := s.client.Generation(t.Context(), true); err != nil || gen == "" {
		t.Errorf("the store of the node: %q, %v", gen, err)
	}

	// Nobody is a member there.
	l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	at = l.Addr().String()
	if _, _, err := join(); !errors.Is(err, gossip.ErrBind) || !strings.Contains(err.Error(), at) {
		t.Errorf("an address that a stranger has: %v", err)
	}

	// Whoever is a member there has a Redis.
	other, err := gossip.Start(t.Context(), gossip.Config{Self: ring.Member{Name: "other", Role: ring.RoleRouter}, Logger: slog.New(slog.NewTextHandler(new(bytes.Buffer), nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	at = other.Addr()
	if _, _, err := join(); err == nil || !strings.Contains(err.Error(), "--redis") {
		t.Errorf("an address of a member without a store: %v", err)
	}
}
