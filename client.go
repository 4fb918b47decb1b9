package keyway

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"

	"go.opentelemetry.io/otel/trace"

	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/client"
	"github.com/keyway-go/keyway/internal/offered"
	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/gossip"
)

// Client makes calls for keys straight to the nodes that own them. Every node has one, and
// [NewClient] makes one for any process. It is an [http.RoundTripper].
type Client struct {
	*client.Client
	members *gossip.Cluster // nil for the client of a node
	unstore func()          // closes the store, and what follows it; nil without ClientConfig.Redis and Store
}

// ClientConfig configures a [Client] of a process that owns no keys. Fields that [Config] has too
// mean the same, with the same default.
type ClientConfig struct {
	Name                    string // default: client- and a random text
	Join                    []string
	Gossip, GossipAdvertise string
	GossipKeys              [][]byte
	GossipOpen              bool
	Redis                   string // the nodes', in which it then finds them; default: it finds them by Join alone
	Store                   func(store.Config) (Store, error)
	PeerTLS                 *gateway.PeerTLS
	Settings                ring.Settings
	Keys                    gateway.KeySources // of requests for RoundTrip
	Limits                  gateway.Limits
	TracerProvider          trace.TracerProvider
	TraceKeys               bool
	Logger                  *slog.Logger
}

// NewClient makes this process a member of the cluster that owns no keys, and
// returns a client of it. ctx bounds only NewClient itself. The caller must call
// [Client.Close].
func NewClient(ctx context.Context, cfg ClientConfig) (*Client, error) {
	common, err := Config{
		Gossip: cfg.Gossip, GossipAdvertise: cfg.GossipAdvertise, Join: cfg.Join, GossipKeys: cfg.GossipKeys, GossipOpen: cfg.GossipOpen,
		Redis: cfg.Redis, Store: cfg.Store, PeerTLS: cfg.PeerTLS, Settings: cfg.Settings, Logger: cfg.Logger,
		Offered: cfg.Redis == "" && cfg.Store == nil, // a client keeps no store, whatever the build
	}.complete()
	if err != nil {
		return nil, err
	}
	name := cmp.Or(cfg.Name, "client-"+rand.Text()[:10])
	members, err := common.join(ctx, ring.Member{Name: name, Role: ring.RoleRouter, State: ring.StateActive})
	if err != nil {
		return nil, gossipError(err)
	}
	client, err := client.New(client.Config{
		Members: members, Keys: cfg.Keys, Limits: cfg.Limits, PeerTLS: cfg.PeerTLS, TracerProvider: cfg.TracerProvider, TraceKeys: cfg.TraceKeys, Logger: common.Logger,
	})
	if err != nil {
		members.Close()
		return nil, fmt.Errorf("keyway: %w", err)
	}
	c := &Client{Client: client, members: members}
	if common.Store == nil {
		return c, nil
	}
	opened, err := common.Store(store.Config{Settings: members.Settings(), Logger: common.Logger})
	if err != nil {
		return nil, errors.Join(bad("Client%s: %w", common.settingOfStore(), err), c.Close())
	}
	unfollow := (&offered.Follower{Store: opened, Members: members, Logger: common.Logger, Alone: true}).Follow()
	c.unstore = func() {
		unfollow()
		opened.Close()
	}
	return c, nil
}

// Close closes the connections and leaves the cluster. Waiting and later calls fail. The client of
// a node is closed with the node, and its Close does nothing. Close may be called again.
func (c *Client) Close() error {
	if c.members == nil {
		return nil
	}
	if c.unstore != nil {
		c.unstore()
	}
	err := c.Client.Close()
	_ = c.members.Leave(context.Background()) // the others find out
	return err
}
