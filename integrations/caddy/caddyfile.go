package caddykeyway

import (
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

var _ caddyfile.Unmarshaler = (*Upstreams)(nil)

// UnmarshalCaddyfile implements [caddyfile.Unmarshaler]:
//
//	dynamic keyway {
//		join             <address...>
//		door_port        <port>
//		key              <source...>
//		routes           <file>
//		gossip           <address>
//		gossip_advertise <address>
//		gossip_key       <keys>
//		gossip_open
//		cluster          <name>
//		partitions       <number>
//		session_ttl      <duration>
//		peer_tls
//	}
func (u *Upstreams) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	options := map[string]any{
		"join": &u.Join, "door_port": &u.DoorPort, "key": &u.Keys, "routes": &u.Routes,
		"gossip": &u.Gossip, "gossip_advertise": &u.GossipAdvertise, "gossip_key": &u.GossipKey, "gossip_open": &u.GossipOpen,
		"cluster": &u.Cluster, "partitions": &u.Partitions, "session_ttl": &u.SessionTTL, "peer_tls": &u.PeerTLS,
	}
	d.Next() // keyway
	if d.NextArg() {
		return d.ArgErr()
	}
	for d.NextBlock(0) {
		name, args := d.Val(), d.RemainingArgs()
		option, known := options[name]
		_, list := option.(*[]string)
		_, flag := option.(*bool)
		switch {
		case !known:
			return d.Errf("unrecognized option %q", name)
		case list && len(args) == 0, flag && len(args) > 0, !list && !flag && len(args) != 1:
			return d.ArgErr()
		}
		var err error
		switch value := option.(type) {
		case *[]string:
			*value = append(*value, args...)
		case *bool:
			*value = true
		case *string:
			*value = args[0]
		case *int:
			*value, err = strconv.Atoi(args[0])
		case *caddy.Duration:
			var ttl time.Duration
			ttl, err = caddy.ParseDuration(args[0])
			*value = caddy.Duration(ttl)
		}
		if err != nil {
			return d.Errf("%s: %v", name, err)
		}
	}
	return nil
}
