// Command router is Keyway's front door: it takes a key from each request and
// sends the request to the worker that owns the key.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"

	"github.com/keyway-go/keyway/gateway/admin"
	"github.com/keyway-go/keyway/gateway/lockservice"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/ctl"
	"github.com/keyway-go/keyway/internal/door"
	"github.com/keyway-go/keyway/internal/metrics"
	"github.com/keyway-go/keyway/internal/offered"
	"github.com/keyway-go/keyway/internal/process"
	"github.com/keyway-go/keyway/internal/tracing"
	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/gossip"
)

func main() { os.Exit(cli.Main("router", run)) }

// defaultAdmin is where a router is asked what it does, unless it says otherwise.
const defaultAdmin = "127.0.0.1:8081"

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == "check" {
		return check(args[1:], stdout)
	}
	if len(args) > 0 && args[0] == "ctl" {
		return ctl.Run(ctx, "router", defaultAdmin, args[1:], stdout)
	}
	o, err := parseOptions(args, stdout)
	if err != nil {
		return err
	}
	logger, stopLog := o.Logger(stderr)
	defer stopLog()
	o.FollowPeerTLS(logger)
	listeners, err := door.Listen("listen", o.listen)
	if err != nil {
		return err
	}
	defer door.CloseAll(listeners)
	locks, err := door.Listen("locks", o.locks)
	if err != nil {
		return err
	}
	defer door.CloseAll(locks)
	operators, err := process.Listen("admin", o.admin)
	if err != nil {
		return err
	}
	defer operators.Close()
	process.WarnOfAdmin(logger, operators.Addr())
	name, err := process.MachineName(tcpAddr(append(listeners, operators)))
	if err != nil {
		return err
	}

	store, err := openStore(ctx, o, logger)
	if err != nil {
		return cli.Ended(ctx, err, gossip.ErrConfig)
	}
	defer store.close()
	gossiping := o.Gossip
	gossiping.Self = ring.Member{Name: "router-" + name, Role: ring.RoleRouter, State: ring.StateActive, Addr: tcpAddr(listeners).String()}
	gossiping.Logger = logger
	members, err := store.join(ctx, gossiping, o.NewCluster, meeting)
	if err != nil {
		return cli.Ended(ctx, err, gossip.ErrConfig)
	}
	defer process.Leave(members, logger)
	defer store.close()
	follower := &offered.Follower{Store: store.client, Members: members, Logger: logger}
	defer follower.Follow()()

	stopAccessLog, err := o.door.OpenLog(&o.Common, logger)
	if err != nil {
		return err
	}
	defer stopAccessLog()
	config := o.door.Config
	config.Members, config.Logger = members, logger
	traces := o.Traces.Start(stdout, logger)
	defer traces.Close()
	config.TracerProvider, config.TraceKeys = traces.TracerProvider(), o.TraceKeys
	router, err := router.New(config)
	if err != nil {
		return cli.Usagef("%v", err)
	}
	defer router.Close()
	p := &running{o: o, logger: logger, store: store, follower: follower, members: members, router: router, locks: newLockService(router, config, o), traces: traces}
	return p.serve(ctx, stdout, listeners, locks, operators)
}

// tcpAddr returns the address of the first listener that others can reach, an empty
// one if there is none.
func tcpAddr(listeners []net.Listener) net.Addr {
	for _, l := range listeners {
		if addr, ok := l.Addr().(*net.TCPAddr); ok {
			return addr
		}
	}
	return new(net.TCPAddr)
}

// running is a started router.
type running struct {
	o        *options
	logger   *slog.Logger
	store    *backend
	follower *offered.Follower
	members  *gossip.Cluster
	router   *router.Router
	locks    *lockservice.Service
	traces   *tracing.Tracing
}

// serve serves requests until ctx ends, and then waits for the running ones.
func (p *running) serve(ctx context.Context, stdout io.Writer, listeners, locks []net.Listener, operators net.Listener) error {
	failed := make(chan error, len(listeners)+len(locks)+1)
	requests := p.o.door.Open(&p.o.Common, p.router, listeners, failed, p.logger)
	defer requests.Close()
	locksServer := p.newLocksServer(locks)
	defer locksServer.Close()
	for _, l := range locks {
		go func() { failed <- locksServer.Serve(l) }()
	}
	adminServer := process.NewServer(admin.New(admin.Config{
		Members: p.members, Ready: p.ready, Store: p.store.client.Trouble,
		Routes:  p.router.RoutesStatus,
		Metrics: metrics.NewRegistry(p.router, p.locks, p.members, p.traces), Operator: p.router.Operator(), Token: p.o.AdminToken, Hosts: p.o.AdminHosts,
	}), p.logger)
	defer adminServer.Close()
	go func() { failed <- adminServer.Serve(operators) }()

	fmt.Fprint(stdout, cli.StateLine("router ready", requests.URLs, operators.Addr().String(), p.members.Addr()))
	defer process.TellSupervisor(ctx, p.logger)()
	select {
	case err := <-failed:
		return fmt.Errorf("the server ended: %w", err)
	case <-ctx.Done():
	}
	requests.Leave() // from which on p.ready fails
	if err := p.members.Announce(func(self *ring.Member) { self.State = ring.StateLeaving }); err != nil {
		p.logger.Debug("cannot announce leaving", "error", err)
	}
	err := requests.End(p.o.DrainTimeout, p.logger, locksServer.Shutdown)
	if errors.Is(err, context.DeadlineExceeded) {
		p.logger.Warn("requests still ran when the grace period ended; --drain-timeout makes it longer", "grace", p.o.DrainTimeout)
		return nil
	}
	return err
}

func (p *running) ready() error {
	if err := p.follower.Ready(); err != nil {
		return err
	}
	err, trouble := p.router.Ready(), p.store.client.Trouble()
	if err != nil && trouble != nil {
		return fmt.Errorf("%w: %w", err, trouble)
	}
	return err
}
