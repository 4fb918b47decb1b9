package keyway

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"

	"github.com/keyway-go/keyway/gateway/router"
)

// Handler makes the node a door of its cluster, in a server of the program's own. The returned
// handler takes requests from clients, as a router does. A request for a key of this node runs in
// this process, with app. Others go to the nodes that own their keys. app also gets the requests
// that other nodes send here, as the h of [Node.Serve] does; nil keeps the present handler.
//
// Keys or Routes of cfg say where requests have their keys, and must be the same at all doors and
// routers of the cluster. The node sets Members, Own and PeerTLS. It also sets Logger and
// TracerProvider, unless cfg does. MaxConnections is half of a router's default, since the node
// needs connections too.
//
// The handler takes requests from any client that reaches it, and drops the fields that only Keyway
// may set. A [router.Server] serves it at less cost than an [http.Server]. The program should shut
// its server down before [Node.Close], which closes the handler. While a router.Server leaves,
// /readyz at Config.Admin fails. A node has at most one handler.
func (n *Node) Handler(app http.Handler, cfg router.Config) (*router.Router, error) {
	if cfg.Members != nil || cfg.Own != nil || cfg.PeerTLS != nil {
		return nil, bad("Node.Handler: Members, Own and PeerTLS of router.Config are the node's: leave them out")
	}
	cfg.Members, cfg.Own, cfg.PeerTLS = n.members, n.server.Dial, n.cfg.PeerTLS
	cfg.Logger = cmp.Or(cfg.Logger, n.log)
	if cfg.TracerProvider == nil {
		cfg.TracerProvider, cfg.TraceKeys = n.cfg.TracerProvider, cfg.TraceKeys || n.cfg.TraceKeys
	}
	cfg.MaxConnections = cmp.Or(cfg.MaxConnections, max(router.Config{}.WithDefaults().MaxConnections/2, 1))
	door, err := router.New(cfg)
	if err != nil {
		return nil, bad("Node.Handler: %w", err)
	}
	if !n.door.CompareAndSwap(nil, door) {
		return nil, errors.Join(errors.New("keyway: the node has a Handler already: serve that one"), door.Close())
	}
	if err := n.members.AnnounceKeySource(door.KeySource()); err != nil {
		n.door.Store(nil)
		return nil, errors.Join(fmt.Errorf("keyway: another node or router of the cluster uses another key source: %w", err), door.Close())
	}
	if app != nil {
		n.handler.set(n.worker, app)
	}
	return door, n.setPages()
}
