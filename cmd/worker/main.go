// Command worker owns partitions of the ring and runs one request at a time
// per key: in front of an app in any language (--upstream), or with the demo
// app that is built in.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/ctl"
	"github.com/keyway-go/keyway/internal/door"
	"github.com/keyway-go/keyway/internal/lease"
	"github.com/keyway-go/keyway/internal/process"
	"github.com/keyway-go/keyway/internal/storeurl"
	"github.com/keyway-go/keyway/internal/wake"
)

// lookEvery is how often a worker whose app does not answer looks whether it is ready.
const lookEvery = 100 * time.Millisecond

func main() { os.Exit(cli.Main("worker", run)) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	if len(args) > 0 && args[0] == "ctl" {
		return ctl.Run(ctx, "worker", "127.0.0.1:8081", args[1:], stdout)
	}
	o, err := parseOptions(args, stdout)
	if err != nil {
		return err
	}
	if o.Store != "" {
		probe, err := storeurl.Open[io.Closer](o.Store, store.Config{Settings: o.Gossip.Settings})
		if err != nil {
			return err
		}
		probe.Close()
	}
	logger, stopLog := o.Logger(stderr)
	defer stopLog()
	if o.supervise {
		o.OnLook(func(bool) {}) // a SIGHUP is the child's
		return supervise(args, o.node.LockFile, lease.Grace(o.Gossip.Settings.WithDefaults().TTL), logger)
	}
	defer process.SpareThreads()()
	o.FollowPeerTLS(logger)

	listener, err := process.Listen("listen", o.listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	public, err := door.Listen("public", o.public)
	if err != nil {
		return err
	}
	defer door.CloseAll(public)
	config := o.node
	if config.Name == "" {
		if config.Name, err = process.MachineName(listener.Addr()); err != nil {
			return fmt.Errorf("%w: choose a name with --name", err)
		}
	}
	config.Listener, config.AdminToken, config.AdminHosts, config.Logger = listener, o.AdminToken, o.AdminHosts, logger
	config.Gossip, config.GossipAdvertise, config.Join = o.Gossip.Bind, o.Gossip.Advertise, o.Gossip.Seeds
	config.GossipKeys, config.GossipOpen, config.PeerTLS = o.Gossip.Keyring, o.Gossip.Open, o.PeerTLS
	config.Offered, config.NewCluster, config.Settings = o.Store == "", o.NewCluster, o.Gossip.Settings
	config.Keys, config.Supervisor = o.Keys, supervisor()
	config.DrainTimeout, _ = o.graces()
	config.Settings.KeySource, config.Settings.PeerTLS, config.Settings.PeerTLSOptional = "", false, false // of routers; said by PeerTLS
	config.App.Upgrades = o.Upgrades
	traces := o.Traces.Start(stdout, logger)
	defer traces.Close()
	config.TracerProvider, config.TraceKeys, config.Metrics = traces.TracerProvider(), o.TraceKeys, []prometheus.Collector{traces}
	if o.Store != "" {
		config.Store = func(cfg store.Config) (keyway.Store, error) { return storeurl.Open[keyway.Store](o.Store, cfg) }
	}
	if config.Upstream == nil {
		config.Handler = &demo{worker: config.Name}
	}
	node, err := keyway.Start(ctx, config)
	if err != nil {
		return cli.Ended(ctx, err, keyway.ErrConfig)
	}
	defer node.Close()
	return o.serve(ctx, node, public, logger, func(requests string) (stop func()) {
		saying, cancel := context.WithCancel(ctx)
		var said sync.WaitGroup
		said.Go(func() {
			sayReady(saying, node.Local(), func(state string) {
				fmt.Fprint(stdout, cli.StateLine("worker "+state, requests, node.AdminAddr(), node.GossipAddr()))
			})
		})
		untold := process.TellSupervisor(ctx, logger)
		return func() {
			untold()
			cancel()
			said.Wait()
		}
	})
}

// sayReady says that the worker is ready; while its app does not answer, first that it
// waits for that.
func sayReady(ctx context.Context, w *worker.Worker, say func(state string)) {
	err := w.Await(ctx)
	if errors.Is(err, worker.ErrAppDown) {
		say("waits for its app")
	}
	for ; errors.Is(err, worker.ErrAppDown) && ctx.Err() == nil; err = w.Await(ctx) {
		wake.Sleep(lookEvery, ctx.Done())
	}
	if err == nil {
		say("ready")
	}
}
