package keyway_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/ring"
)

// A mistake is an error that names the field.
func TestConfigErrors(t *testing.T) {
	app := http.NotFoundHandler()
	for want, cfg := range map[string]keyway.Config{
		"Config.Listen":             {Listen: "127.0.0.1"},
		"Config.Listener":           {Listen: "127.0.0.1:0", Listener: new(net.TCPListener)},
		"Config.Admin":              {Admin: "x"},
		"Config.Gossip":             {Gossip: "127.0.0.1"},
		"Config.Gossip (--gossip)":  {Advertise: "192.0.2.1", Gossip: "0.0.0.0:0", Redis: "redis://127.0.0.1:1"},
		"Config.GossipOpen":         {Advertise: "192.0.2.1", Gossip: "0.0.0.0:0", Redis: "redis://127.0.0.1:1"},
		"Config.GossipAdvertise":    {Advertise: "192.0.2.1", GossipAdvertise: "192.0.2.1:1", Redis: "redis://127.0.0.1:1"},
		"Config.GossipKeys":         {GossipKeys: [][]byte{{1}}},
		"Config.Advertise":          {Listen: "0.0.0.0:0", Gossip: "0.0.0.0:0", Redis: "redis://127.0.0.1:1"},
		`"http://192.0.2.1"`:        {Advertise: "http://192.0.2.1", Redis: "redis://127.0.0.1:1"},
		`"192.0.2.1:first"`:         {Advertise: "192.0.2.1:first", Redis: "redis://127.0.0.1:1"},
		`":9000"`:                   {Advertise: ":9000", Redis: "redis://127.0.0.1:1"},
		"of this machine alone":     {Gossip: "0.0.0.0:0", GossipOpen: true, Redis: "redis://127.0.0.1:1"},
		"but gossip (192.0.2.1)":    {GossipAdvertise: "192.0.2.1", GossipOpen: true, Redis: "redis://127.0.0.1:1"},
		"Config.Redis":              {Redis: "http://x"},
		"Config.Store":              {Redis: "redis://x", Store: func(store.Config) (keyway.Store, error) { return nil, nil }},
		"Config.Offered":            {Redis: "redis://x", Offered: true},
		"Config.Upstream":           {Handler: app, Upstream: new(url.URL)},
		"Config.App.Batch":          {Upstream: &url.URL{Scheme: "h2c", Host: "127.0.0.1:1"}, App: worker.App{Batch: "/batch"}},
		"Limits.BodyDir":            {Limits: worker.Limits{BodyDir: filepath.Join(t.TempDir(), "none")}},
		"Config.DrainTimeout":       {DrainTimeout: -1},
		"Config.Settings":           {Settings: ring.Settings{TTL: 1}},
		"Config.Settings.KeySource": {Settings: ring.Settings{KeySource: "host"}},
		"Config.Settings.Store":     {Settings: ring.Settings{Store: 1}},
		"Config.Settings.PeerTLS":   {Settings: ring.Settings{PeerTLS: true}},
		"Config.LockFile":           {LockFile: filepath.Join(t.TempDir(), "none", "lock")},
	} {
		if cfg.Join == nil {
			cfg.Join = []string{kit.FreeAddr(t)}
		}
		_, err := keyway.Start(t.Context(), cfg)
		if !errors.Is(err, keyway.ErrConfig) || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), "bad configuration") != 1 {
			t.Errorf("%v, want ErrConfig about %s, which is said once", err, want)
		}
	}
	_, err := keyway.Start(t.Context(), keyway.Config{Join: []string{kit.FreeAddr(t)}, Limits: worker.Limits{Queue: -1}})
	if err == nil || !strings.Contains(err.Error(), "Limits.Queue") {
		t.Errorf("%v, want an error about Limits.Queue", err)
	}
}

// Gossip that reaches other machines needs a Redis, and says so soon.
func TestTrapNoStoreInMemoryForManyMachines(t *testing.T) {
	for _, cfg := range []keyway.Config{
		{Gossip: "0.0.0.0:0"},
		{Join: []string{"192.0.2.1:7946"}}, // of a network for documentation
		{GossipAdvertise: "192.0.2.1"},
		{Gossip: "0.0.0.0:0", Join: []string{kit.FreeAddr(t)}, NewCluster: true},
	} {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			cfg.Settings, cfg.GossipOpen, cfg.Advertise = quick, true, "192.0.2.1"
			_, err := keyway.Start(t.Context(), cfg)
			if !errors.Is(err, keyway.ErrConfig) || !strings.Contains(err.Error(), "Config.Redis") {
				t.Errorf("%v, want an error about Config.Redis", err)
			}
		})
	}
}

// A start that is given up says what it waited for, and leaves nothing open.
func TestStartIsBounded(t *testing.T) {
	kit.NoLeaks(t)
	var starting sync.WaitGroup
	defer starting.Wait()
	for want, change := range map[string]func(*keyway.Config){
		"Config.Redis": func(cfg *keyway.Config) { cfg.Offered = true },
		"no session":   func(cfg *keyway.Config) { cfg.Redis = "redis://127.0.0.1:1" },
		"of the 64":    func(cfg *keyway.Config) { cfg.Settings.TTL = time.Hour },
	} {
		cfg := config(t, "a", kit.FreeAddr(t))
		cfg.Listen = kit.FreeAddr(t)
		change(&cfg)
		starting.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			node, err := keyway.Start(ctx, cfg)
			cancel()
			if node != nil || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "a ") {
				t.Errorf("%v, want an error about %q", err, want)
			}
			l, err := net.Listen("tcp", cfg.Listen)
			if err != nil {
				t.Error(err)
				return
			}
			l.Close()
		})
	}
}
