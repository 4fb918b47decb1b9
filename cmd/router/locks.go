package main

import (
	"net"

	"github.com/keyway-go/keyway/gateway/lockservice"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/process"
)

// newLockService returns the lock service over what the router has, which was made with config.
func newLockService(through *router.Router, config router.Config, o *options) *lockservice.Service {
	return lockservice.New(through, lockservice.Config{
		Token: o.locksToken, Hosts: o.AdminHosts, MaxWaiting: config.MaxHeld, MaxConnections: config.MaxConnections,
		TracerProvider: config.TracerProvider, TraceKeys: config.TraceKeys, Logger: config.Logger,
	})
}

// newLocksServer returns the server of --locks, which is to serve these listeners.
func (p *running) newLocksServer(listeners []net.Listener) *lockservice.Server {
	general, scheme := process.NewServer(nil, p.logger), "http"
	if general.TLSConfig = p.o.door.TLS(); general.TLSConfig != nil {
		scheme = "https"
	}
	for _, l := range listeners {
		tcp, isTCP := l.Addr().(*net.TCPAddr)
		switch reachable := isTCP && !tcp.IP.IsLoopback(); {
		case reachable && p.o.locksToken == "":
			p.logger.Warn("only this machine can use the lock service (--locks): set --locks-token to let others use it", "addr", l.Addr())
		case reachable && general.TLSConfig == nil:
			p.logger.Warn("anyone who sees the network of the lock service (--locks) can read its token (--locks-token): use a private network, or set --tls-cert", "addr", l.Addr())
		}
		p.logger.Info("the lock service is ready", "url", process.URL(l, scheme)+"/v1/locks/")
	}
	return p.locks.NewServer(general)
}
