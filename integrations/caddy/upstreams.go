package caddykeyway

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/ring"
)

// moduleID is the name of the module.
const moduleID = "http.reverse_proxy.upstreams.keyway"

// Caddy finds modules by this.
func init() { caddy.RegisterModule(new(Upstreams)) }

// mostDoors is how many doors a request may try: its owner's, and others that send it on to the owner.
const mostDoors = 3

// Upstreams are the doors of a cluster. For each request they begin with the door of the worker that owns the request's key,
// if that is known. Join and DoorPort are required; the other fields are like the flags of cmd/worker, and have their
// defaults. Join, Gossip, GossipAdvertise and GossipKey may have placeholders, such as {env.KEYWAY_GOSSIP_KEY}.
//
// Provision joins the cluster as a member without keys, and Cleanup leaves it.
type Upstreams struct {
	Join            []string       `json:"join,omitempty"`             // gossip addresses of members
	DoorPort        int            `json:"door_port,omitempty"`        // of --public at all workers, at the host of --advertise
	Keys            []string       `json:"keys,omitempty"`             // as --key
	Routes          string         `json:"routes,omitempty"`           // file of --routes, in place of Keys
	Gossip          string         `json:"gossip,omitempty"`           // host:port; default 127.0.0.1 and a free port
	GossipAdvertise string         `json:"gossip_advertise,omitempty"` // as --gossip-advertise
	GossipKey       string         `json:"gossip_key,omitempty"`       // as --gossip-key
	GossipOpen      bool           `json:"gossip_open,omitempty"`      // as --gossip-open
	Cluster         string         `json:"cluster,omitempty"`          // as --cluster
	Partitions      int            `json:"partitions,omitempty"`       // as --partitions
	SessionTTL      caddy.Duration `json:"session_ttl,omitempty"`      // as --session-ttl
	PeerTLS         bool           `json:"peer_tls,omitempty"`         // members have --peer-cert

	member *member // nil before Provision
	place  place   // of member
	keyOf  func(*http.Request) (string, error)
	turn   atomic.Uint32 // of the next other door
}

// CaddyModule implements [caddy.Module].
func (*Upstreams) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: moduleID, New: func() caddy.Module { return new(Upstreams) }}
}

// Provision implements [caddy.Provisioner]. It succeeds while no member can be reached.
func (u *Upstreams) Provision(ctx caddy.Context) (err error) {
	if u.DoorPort < 1 || u.DoorPort > 65535 {
		return fmt.Errorf("door_port is %d, want the port of --public, which must be the same at all workers", u.DoorPort)
	}
	for _, m := range ctx.Modules() {
		if h, ok := m.(*reverseproxy.Handler); ok {
			if err := tryInOrder(h); err != nil {
				return err
			}
		}
	}
	if u.keyOf, err = u.keys(); err != nil {
		return err
	}
	if u.place, err = u.placeOf(caddy.NewReplacer()); err != nil {
		return err
	}
	u.member, err = u.place.take(ctx)
	return err
}

// tryInOrder makes the handler try the first door first.
func tryInOrder(h *reverseproxy.Handler) error {
	if h.LoadBalancing == nil {
		h.LoadBalancing = new(reverseproxy.LoadBalancing)
	}
	switch policy := h.LoadBalancing.SelectionPolicy.(type) {
	case nil:
		h.LoadBalancing.SelectionPolicy = new(reverseproxy.FirstSelection)
	case *reverseproxy.FirstSelection:
	default:
		return fmt.Errorf("the selection policy (lb_policy) is %T, which does not take the owner's door: leave it out", policy)
	}
	return nil
}

// keys returns what finds the key of a request.
func (u *Upstreams) keys() (func(*http.Request) (string, error), error) {
	if u.Routes != "" {
		if len(u.Keys) > 0 {
			return nil, errors.New("key and routes exclude each other: the file says where keys stand")
		}
		table, err := router.LoadRoutes(u.Routes)
		if err != nil {
			return nil, err
		}
		return table.KeyOf, nil
	}
	specs := u.Keys
	if len(specs) == 0 {
		specs = []string{"header:X-Key"}
	}
	var sources gateway.KeySources
	for _, spec := range specs {
		source, err := gateway.ParseKeySource(spec)
		if err != nil {
			return nil, err
		}
		sources = append(sources, source)
	}
	return sources.Extract, nil
}

// Cleanup implements [caddy.CleanerUpper].
func (u *Upstreams) Cleanup() error {
	if u.member == nil {
		return nil
	}
	return u.place.leave() // requests that still run see the last view
}

// GetUpstreams implements [reverseproxy.UpstreamSource]. A request goes to any door if it has no key, or if
// readers could differ about its key. That door answers it as the routes say.
func (u *Upstreams) GetUpstreams(r *http.Request) ([]*reverseproxy.Upstream, error) {
	view := u.member.View()
	workers := view.Workers()
	if len(workers) == 0 {
		return nil, fmt.Errorf("no worker of the cluster %q is known; gossip joins %s", u.member.Settings().Cluster, u.place.join)
	}
	doors := make([]*reverseproxy.Upstream, 0, mostDoors)
	owner := u.owner(view, r)
	doors = u.add(doors, owner)
	for i, turn := 0, int(u.turn.Add(1)); i < len(workers) && len(doors) < mostDoors; i++ {
		if m := workers[(turn+i)%len(workers)]; m.Incarnation != owner.Incarnation {
			doors = u.add(doors, m)
		}
	}
	return doors, nil
}

// owner returns the worker that should own the request's key, or the zero Member.
func (u *Upstreams) owner(view *ring.View, r *http.Request) ring.Member {
	key, err := u.keyOf(r)
	if err != nil {
		return ring.Member{}
	}
	m, _ := view.Owner(view.Table.Partition(key))
	return m
}

// add appends the worker's door, if it has an address. Caddy would replace a placeholder in it.
func (u *Upstreams) add(doors []*reverseproxy.Upstream, m ring.Member) []*reverseproxy.Upstream {
	host, _, err := net.SplitHostPort(m.Addr)
	if err != nil || strings.Contains(host, "{") {
		return doors
	}
	return append(doors, &reverseproxy.Upstream{Dial: net.JoinHostPort(host, strconv.Itoa(u.DoorPort))})
}

var (
	_ caddy.Provisioner           = (*Upstreams)(nil)
	_ caddy.CleanerUpper          = (*Upstreams)(nil)
	_ reverseproxy.UpstreamSource = (*Upstreams)(nil)
)
