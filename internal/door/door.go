package door

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/accesslog"
	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/process"
	"github.com/keyway-go/keyway/internal/wake"
)

// OpenLog starts the log of --access-log, if there is one, for Config. SIGHUP opens its file anew.
// stop writes what is left.
func (o *Options) OpenLog(c *cli.Common, logger *slog.Logger) (stop func(), err error) {
	if o.accessLog.File == "" {
		return func() {}, nil
	}
	config := o.accessLog
	config.Logger = logger
	l, err := accesslog.Start(config)
	if err != nil {
		return nil, cli.Usagef("--access-log: %v", err)
	}
	c.OnLook(func(hangup bool) {
		if hangup {
			l.Reopen()
		}
	})
	o.Config.AccessLog = l
	return func() { _ = l.Close() }, nil // a disk that takes nothing has been warned of
}

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

// followRoutes puts the file of --routes in force when it changes, and on SIGHUP. With mistakes, or
// with other keys than those in force, it changes nothing.
func (o *Options) followRoutes(c *cli.Common, rt *router.Router, logger *slog.Logger) {
	if o.routesSeen == nil {
		return
	}
	c.Follow(o.routesSeen, func() {
		if err := rt.Reload(o.routesFile); err != nil {
			logger.Error("the routes cannot be reloaded: the old ones stay in force", "file", o.routesFile, "error", cli.OneLine(err))
			return
		}
		table := rt.Routes()
		logger.Info("routes are in force", "file", o.routesFile, "routes", len(table.Routes()), "digest", fmt.Sprintf("%016x", table.Digest()))
	})
}

// End ends the door, and runs what else ends with it, within the grace. Clients are told to connect anew, and
// requests are still taken for --drain-notice, until load balancers have noticed. Then End waits for the requests that run.
func (d *Door) End(grace time.Duration, logger *slog.Logger, others ...func(context.Context) error) error {
	d.Leave()
	logger.Info("leaving: finishing the requests that run", "grace", grace)
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	wake.Sleep(d.notice, ctx.Done())
	var ending errgroup.Group
	for _, end := range append(others, d.Shutdown) {
		ending.Go(func() error { return end(ctx) })
	}
	return ending.Wait()
}
