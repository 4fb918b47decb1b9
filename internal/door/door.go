package door

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/process"
	"github.com/keyway-go/keyway/internal/wake"
)

// Door takes requests from clients.
type Door struct {
	*router.Server
	URLs   string // at which it does, separated by spaces
	notice time.Duration
}

// Listen listens on all of the addresses that a flag holds, or on none.
func Listen(flagName string, addrs []string) ([]net.Listener, error) {
	var all []net.Listener
	for _, addr := range addrs {
		l, err := process.Listen(flagName, addr)
		if err != nil {
			CloseAll(all)
			return nil, err
		}
		all = append(all, l)
	}
	return all, nil
}

// CloseAll closes listeners.
func CloseAll(listeners []net.Listener) {
	for _, l := range listeners {
		l.Close()
	}
}

// TLS returns the configuration of a server of clients; without a certificate it is nil.
func (o *Options) TLS() *tls.Config {
	if !o.cert.given() {
		return nil
	}
	return &tls.Config{GetCertificate: o.cert.choose}
}

// Open serves the router, which was made with Config, at the listeners, and follows the files of the
// flags. failed gets why the server of a listener has ended, and must have room for each.
func (o *Options) Open(c *cli.Common, rt *router.Router, listeners []net.Listener, failed chan<- error, logger *slog.Logger) *Door {
	general, scheme := process.NewServer(rt, logger), "http"
	d := &Door{notice: o.notice}
	o.followRoutes(c, rt, logger)
	if general.TLSConfig = o.TLS(); general.TLSConfig != nil {
		scheme = "https"
		c.FollowCertificate(o.cert.files, &o.cert, logger)
	}
	d.Server = router.NewServer(rt, general)
	serve := d.Serve
	if general.TLSConfig != nil {
		serve = func(l net.Listener) error { return d.ServeTLS(l, "", "") }
	}
	var urls []string
	for _, l := range listeners {
		urls = append(urls, process.URL(l, scheme))
		go func() { failed <- serve(l) }()
	}
	d.URLs = strings.Join(urls, " ")
	return d
}

// Announce tells clients to connect anew. It returns after --drain-notice, or when ctx ends.
// Requests are still taken meanwhile, until load balancers have noticed.
func (d *Door) Announce(ctx context.Context) {
	d.Leave()
	wake.Sleep(d.notice, ctx.Done())
}
