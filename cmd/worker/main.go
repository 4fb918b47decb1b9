// Command worker owns partitions of the ring and runs one request at a time
// per key: in front of an app in any language (--upstream), or with the demo
// app that is built in.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/gossip"
)

func main() { os.Exit(cli.Main("worker", run)) }

const closeTimeout = 2 * time.Second // for what is left to do once the worker is drained

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, err := parseOptions(args, stdout)
	if err != nil {
		return err
	}
	logger, stopLog := o.Logger(stderr)
	defer stopLog()

	previous, lock, err := lockIncarnations(o.lockFile, bootID())
	if err != nil {
		return err
	}
	defer lock.close()

	listener, err := cli.Listen("listen", o.listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	if o.name == "" {
		if o.name, err = cli.MachineName(listener.Addr()); err != nil {
			return fmt.Errorf("%w: choose a name with --name", err)
		}
	}
	advertise, err := o.advertised(listener.Addr())
	if err != nil {
		return err
	}

	gossiping := o.Gossip
	gossiping.Self = ring.Member{Name: o.name, Role: ring.RoleWorker, State: ring.StateJoining, Addr: advertise, Link: true}
	gossiping.Logger = logger
	members, err := gossip.Start(ctx, gossiping)
	if err != nil {
		return err
	}
	defer members.Close()

	var admin net.Listener
	if o.admin != "" {
		if admin, err = cli.Listen("admin", o.admin); err != nil {
			return err
		}
		defer admin.Close()
	}

	store, err := o.openStore(ctx, members, logger)
	if err != nil {
		return endedByRequest(ctx, err)
	}
	defer store.Close()

	config := o.config
	config.Members, config.Store, config.Logger = members, store, logger
	config.NewCluster, config.ServeWithoutStore = o.NewCluster, o.onRedisLoss == "serve"
	config.Previous, config.OnIncarnation, config.OnPeers = previous, lock.write, members.AddSeeds
	config.PreviousApp = o.upstream != nil
	config.Keys, config.Upgrades = o.Keys, o.Upgrades
	worker, err := worker.Start(ctx, config)
	if err != nil {
		return err
	}
	defer worker.Close()

	handler := worker.Handler(&demo{worker: o.name})
	if o.upstream != nil {
		if handler, err = worker.Sidecar(o.upstream); err != nil {
			return cli.Usagef("--upstream: %v", err)
		}
	}
	p := &process{o: o, logger: logger, members: members, worker: worker}
	return p.serve(ctx, stdout, listener, admin, handler)
}

// closingStore is a store whose connections are the command's to close.
type closingStore interface {
	worker.Store
	Close() error
}

// openStore returns the store at --redis, or the one that a router offers.
func (o *options) openStore(ctx context.Context, members *gossip.Cluster, logger *slog.Logger) (closingStore, error) {
	open := func(url string, known ring.StoreID) (*store.Store, error) {
		settings := members.Settings()
		settings.Store = known
		return store.New(url, store.Config{Settings: settings, NewCluster: o.NewCluster, Logger: logger})
	}
	if o.Redis == "" {
		return openOffered(ctx, members, open, logger)
	}
	store, err := open(o.Redis, 0)
	if err != nil {
		return nil, cli.Usagef("--redis: %v", err)
	}
	return store, nil
}

// process is a worker that runs.
type process struct {
	o       *options
	logger  *slog.Logger
	members *gossip.Cluster
	worker  *worker.Worker
}

// serve takes requests until ctx ends, and then hands everything over.
func (p *process) serve(ctx context.Context, stdout io.Writer, listener, admin net.Listener, handler http.Handler) error {
	failed := make(chan error, 2)
	server := p.worker.NewServer(handler)
	defer server.Close()
	go func() { failed <- server.Serve(listener) }()
	adminAddr := ""
	if admin != nil {
		adminAddr = admin.Addr().String()
		s := cli.NewServer(gateway.NewAdmin(gateway.AdminConfig{Members: p.members, Ready: p.worker.Ready}), p.logger)
		defer s.Close()
		go func() { failed <- s.Serve(admin) }()
	}

	if err := p.await(ctx); err != nil {
		return endedByRequest(ctx, err)
	}
	fmt.Fprint(stdout, cli.ReadyLine("worker", "http://"+listener.Addr().String(), adminAddr, p.members.Addr()))

	select {
	case err := <-failed:
		return fmt.Errorf("the server on %s ended: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	p.logger.Info("leaving: handing the partitions over", "grace", p.o.DrainTimeout)
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.o.DrainTimeout)
	defer cancel()
	err := p.worker.Drain(drain)
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if shutdown := server.Shutdown(end); shutdown != nil && !errors.Is(shutdown, context.DeadlineExceeded) {
		err = errors.Join(err, shutdown)
	}
	if leave := p.members.Leave(end); leave != nil {
		p.logger.Warn("cannot leave gossip: the others will notice", "error", leave)
	}
	return err
}

// await waits until the worker serves what the ring gives it, and says now and
// then what it still waits for.
func (p *process) await(ctx context.Context) error {
	for {
		wait, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := p.worker.Await(wait)
		cancel()
		if err == nil || ctx.Err() != nil || errors.Is(err, ring.ErrSettings) {
			return err
		}
		p.logger.Warn("not ready yet", "error", err)
	}
}

// endedByRequest turns the error of something that a signal has interrupted
// into none.
func endedByRequest(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
