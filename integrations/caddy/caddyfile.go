package caddykeyway

import (
	"strconv"

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
	lists := map[string]*[]string{"join": &u.Join, "key": &u.Keys}
	texts := map[string]*string{
		"routes": &u.Routes, "gossip": &u.Gossip, "gossip_advertise": &u.GossipAdvertise, "gossip_key": &u.GossipKey, "cluster": &u.Cluster,
	}
	numbers := map[string]*int{"door_port": &u.DoorPort, "partitions": &u.Partitions}
	flags := map[string]*bool{"gossip_open": &u.GossipOpen, "peer_tls": &u.PeerTLS}
	d.Next() // keyway
	if d.NextArg() {
		return d.ArgErr()
	}
	for d.NextBlock(0) {
		name := d.Val()
		if list := lists[name]; list != nil {
			args := d.RemainingArgs()
			if len(args) == 0 {
				return d.ArgErr()
			}
			*list = append(*list, args...)
			continue
		}
		if flag := flags[name]; flag != nil {
			if *flag = true; d.NextArg() {
				return d.ArgErr()
			}
			continue
		}
		text, number := texts[name], numbers[name]
		if text == nil && number == nil && name != "session_ttl" {
			return d.Errf("unrecognized option %q", name)
		}
		var arg string
		if !d.AllArgs(&arg) {
			return d.ArgErr()
		}
		var err error
		switch {
		case text != nil:
			*text = arg
		case number != nil:
			*number, err = strconv.Atoi(arg)
		default:
			ttl, wrong := caddy.ParseDuration(arg)
			u.SessionTTL, err = caddy.Duration(ttl), wrong
		}
		if err != nil {
			return d.Errf("%s: %v", name, err)
		}
	}
	return nil
}
