package keyway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/gateway/admin"
	"github.com/keyway-go/keyway/gateway/client"
	"github.com/keyway-go/keyway/gateway/sidecar"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/appwork"
	"github.com/keyway-go/keyway/internal/balancer"
	"github.com/keyway-go/keyway/internal/lease"
	"github.com/keyway-go/keyway/internal/lockfile"
	"github.com/keyway-go/keyway/internal/metrics"
	"github.com/keyway-go/keyway/internal/offered"
	"github.com/keyway-go/keyway/internal/process"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/wake"
	"github.com/keyway-go/keyway/localmutex/locking"
	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/gossip"
)

const (
	closeTimeout = 2 * time.Second // for what is left to do once the worker is drained
	sayEvery     = 5 * time.Second // what a start still waits for
	offerTimeout = 5 * time.Second // for a store, where none can be kept in memory
)

// start does what Start says. If it fails, release closes what it has opened.
func (n *Node) start(ctx context.Context) error {
	previous, err := n.lockFile()
	if err != nil {
		return err
	}
	n.pages.set(waitsFor("its place in gossip at Config.Gossip (--gossip)"))
	if err := n.listen(); err != nil {
		return err
	}
	if err := n.join(ctx); err != nil {
		return gossipError(err)
	}
	n.members.Bury(slices.Sorted(maps.Keys(previous)))
	if n.cfg.Store != nil {
		n.pages.set(waitsFor("the store at " + n.cfg.settingOfStore()))
	} else {
		n.pages.set(waitsFor("a member that offers a store: start one at Config.Join (--join), or set Config.Redis (--redis) or Config.Store (--store)"))
	}
	if err := n.openStore(ctx); err != nil {
		return err
	}
	if err := n.startWorker(ctx, previous); err != nil {
		return err
	}
	if n.cfg.Witness != "" {
		n.onRelease(wake.Background(n.witness))
	}
	if !n.cfg.NoPlacement {
		n.balancer.Go(n.balance)
		n.onRelease(n.balancer.Wait) // it unlocks its key by the client, which closes after that
	}
	if err := n.serve(); err != nil {
		return err
	}
	return n.await(ctx)
}

// lockFile locks the file of Config.LockFile. It returns the dead incarnations in it, and for how
// long their apps may continue.
func (n *Node) lockFile() (previous map[string]time.Duration, err error) {
	grace := time.Duration(0)
	if n.cfg.Upstream != nil {
		grace = lease.Grace(n.cfg.Settings.WithDefaults().TTL)
	}
	dead, lock, err := lockfile.Lock(n.cfg.LockFile, lockfile.BootID(), grace)
	if _, unusable := errors.AsType[*fs.PathError](err); unusable {
		return nil, bad("Config.LockFile (--lock-file): %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("keyway: Config.LockFile: %w", err)
	}
	n.lock, previous = lock, make(map[string]time.Duration)
	n.onRelease(lock.Close)
	n.onRelease(n.serving.Wait)
	for _, d := range dead {
		previous[d.ID] = d.Grace
	}
	return previous, nil
}

// listen opens what Config.Listen and Admin say, and completes the name.
func (n *Node) listen() (err error) {
	if n.listener = n.cfg.Listener; n.listener == nil {
		if n.listener, err = process.Listen("listen", cmp.Or(n.cfg.Listen, "127.0.0.1:0")); err != nil {
			return fmt.Errorf("keyway: Config.Listen: %w", err)
		}
	}
	n.onRelease(func() { n.listener.Close() })
	if n.cfg.Name == "" {
		if n.cfg.Name, err = process.MachineName(n.listener.Addr()); err != nil {
			return bad("%w: choose a name with Config.Name (--name)", err)
		}
	}
	if n.cfg.Advertise, err = n.cfg.advertised(n.listener.Addr()); err != nil {
		return err
	}
	if n.cfg.Admin != "" {
		if n.admin, err = process.Listen("admin", n.cfg.Admin); err != nil {
			return fmt.Errorf("keyway: Config.Admin: %w", err)
		}
		process.WarnOfAdmin(n.log, n.admin.Addr())
		web := process.NewServer(&n.pages, n.log)
		n.serving.Go(func() { n.ended(n.admin, web.Serve(n.admin)) })
		n.onRelease(func() { web.Close() })
	}
	return nil
}

// join makes the node a member, and the host of a store if it has to be one.
func (n *Node) join(ctx context.Context) (err error) {
	if at := n.cfg.hostAt(); at != "" {
		if n.cfg.Gossip == at {
			n.cfg.Gossip = "127.0.0.1:0" // the host takes it, whoever that is
		}
		n.host, err = offered.StartHost(ctx, offered.HostConfig{
			Name: n.cfg.Name, Addr: at, Settings: n.cfg.Settings, Keyring: n.cfg.GossipKeys, NewCluster: n.cfg.NewCluster, Logger: n.log,
		})
		if err != nil {
			return err
		}
		n.onRelease(n.host.Close) // after the others: they use its store
	}
	n.members, err = n.cfg.join(ctx, ring.Member{Name: n.cfg.Name, Role: ring.RoleWorker, State: ring.StateJoining, Addr: n.cfg.Advertise, Link: true})
	if err == nil {
		n.onRelease(func() { process.Leave(n.members, n.log) })
	}
	return err
}

// join makes this process a member of the cluster.
func (c *Config) join(ctx context.Context, self ring.Member) (*gossip.Cluster, error) {
	return gossip.Start(ctx, gossip.Config{
		Settings: c.Settings, Self: self, Logger: c.Logger,
		Bind: c.Gossip, Advertise: c.GossipAdvertise, Keyring: c.GossipKeys, Open: c.GossipOpen,
		Seeds: c.Join, Guessed: c.Store != nil && slices.Equal(c.Join, []string{meeting}),
	})
}

// gossipError returns an error of package gossip as one of this package.
func gossipError(err error) error {
	if errors.Is(err, gossip.ErrRefused) {
		return fmt.Errorf("keyway: a member at Config.Join (--join) refuses this one: %w; if it is of another cluster, set Config.Join to members of this one, or to a free address for a second cluster on this machine", err)
	}
	if errors.Is(err, gossip.ErrConfig) {
		text := strings.TrimPrefix(err.Error(), gossip.ErrConfig.Error()+": ")
		return bad("%s", strings.NewReplacer("Bind (", "Config.Gossip (", "Advertise (", "Config.GossipAdvertise (", "Keyring (", "Config.GossipKeys (", "Open (", "Config.GossipOpen (").Replace(text))
	}
	return fmt.Errorf("keyway: %w", err)
}

// openStore opens the store of Config.Redis or Config.Store, or a member's store.
func (n *Node) openStore(ctx context.Context) (err error) {
	config := store.Config{Settings: n.members.Settings(), NewCluster: n.cfg.NewCluster, Logger: n.log}
	if n.cfg.Store != nil {
		if n.store, err = n.cfg.Store(config); err != nil {
			return bad("%s: %w", n.cfg.settingOfStore(), err)
		}
		n.onRelease(func() { n.store.Close() })
		return nil
	}
	if !n.cfg.oneMachine() && !n.cfg.Offered {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, offerTimeout, bad("Config.Redis (--redis) is empty, and gossip reaches other machines: a store in the memory of a process is for one machine"))
		defer cancel()
	}
	store, err := offered.Open(ctx, n.members, config)
	if err != nil {
		return fmt.Errorf("keyway: %s waited for a member that offers a store: start one at Config.Join, or set Config.Redis or Config.Store: %w", n.cfg.Name, err)
	}
	n.store = store
	n.onRelease(func() { store.Close() })
	return nil
}

func (n *Node) startWorker(ctx context.Context, previous map[string]time.Duration) (err error) {
	config := worker.Config{
		Members: n.members, Store: n.store, Limits: n.cfg.Limits, App: n.cfg.App, ServeWithoutStore: n.cfg.ServeWithoutStore,
		Direct: n.cfg.Direct, PeerTLS: n.cfg.PeerTLS, Keys: n.cfg.Keys, OnPeers: n.members.AddSeeds, OnPlacements: n.members.Place, AwaitApp: n.cfg.Upstream != nil,
		TracerProvider: n.cfg.TracerProvider, TraceKeys: n.cfg.TraceKeys, Logger: n.log,
		// The store that a process of this machine keeps was begun when it was started,
		// so that its own quarantine is enough.
		NewCluster: n.cfg.NewCluster || n.cfg.Store == nil,
	}
	config.GRPC = config.GRPC || n.cfg.Upstream != nil && n.cfg.Upstream.Scheme == "h2c"
	if n.cfg.LockFile != "" {
		config.Previous, config.OnIncarnation, config.OnHold = previous, n.lock.Write, n.lock.Strike
	}
	if n.lock.Running != nil {
		config.AtApp = appwork.NewRecord(n.lock.Running, n.cfg.Supervisor)
	}
	if n.worker, err = worker.Start(ctx, config); err != nil {
		return fmt.Errorf("keyway: %w", err)
	}
	n.onRelease(func() {
		n.worker.Close()
		if n.worker.Status().BusyKeys > 0 {
			n.lock.Keep()
		}
	})
	n.handler.set(n.worker, cmp.Or(n.cfg.Handler, n.worker.Unavailable()))
	if n.cfg.Upstream != nil {
		app, err := sidecar.New(n.worker, n.cfg.Upstream)
		if err != nil {
			return bad("Config.Upstream (--upstream): %w", err)
		}
		n.handler.set(n.worker, app)
	}
	client, err := client.New(client.Config{Members: n.members, PeerTLS: n.cfg.PeerTLS, Local: n.worker.Local(&n.handler), TracerProvider: n.cfg.TracerProvider, TraceKeys: n.cfg.TraceKeys, Logger: n.log})
	if err != nil {
		return fmt.Errorf("keyway: %w", err)
	}
	n.Client = &Client{Client: client}
	n.onRelease(func() { client.Close() })
	return nil
}

// serve takes requests.
func (n *Node) serve() error {
	if err := n.setPages(); err != nil {
		return err
	}
	n.server = n.worker.NewServer(&n.handler)
	n.onRelease(func() { n.server.Close() })
	n.serving.Go(func() { n.ended(n.listener, n.server.Serve(n.listener)) })
	return nil
}

// setPages sets what Config.Admin shows.
func (n *Node) setPages() error {
	registry := metrics.NewRegistry(n)
	for _, part := range n.cfg.Metrics {
		if err := registry.Register(part); err != nil {
			return bad("Config.Metrics: %w", err)
		}
	}
	if n.admin == nil {
		return nil
	}
	cfg := admin.Config{
		Members: n.members, Ready: n.ready, Drain: n.leaveRing, Undrain: n.worker.JoinRing, Operator: n.Client.Operator(), Token: n.cfg.AdminToken, Hosts: n.cfg.AdminHosts,
		Metrics: registry,
	}
	if door := n.door.Load(); door != nil {
		cfg.Routes = door.RoutesStatus
	}
	n.pages.set(admin.New(cfg))
	return nil
}

// balance balances the load of the cluster whenever that is this node's turn.
func (n *Node) balance() {
	balancer.Run(n.over, balancer.Config{
		Name: n.cfg.Name, Members: n.members, Locks: locking.Of(n.Client.Client), Loads: n.Client.Operator().Loads, Logger: n.log,
		Place: func(ctx context.Context, from, to string) (string, error) {
			return n.store.Replace(ctx, records.Placements, from, to)
		},
	})
}

// ready is admin.Config.Ready.
func (n *Node) ready() error {
	if door := n.door.Load(); door != nil {
		if err := door.Ready(); err != nil {
			return err
		}
	}
	return n.worker.Ready()
}

// await waits until the worker serves what the ring gives it, or until it waits for
// its app alone, and says now and then what it still waits for.
func (n *Node) await(ctx context.Context) error {
	for {
		wait, cancel := context.WithTimeout(ctx, sayEvery)
		err := n.worker.Await(wait)
		cancel()
		switch {
		case err == nil:
			return nil
		case errors.Is(err, worker.ErrAppDown):
			n.log.Warn("the node joins the ring when its app answers", "node", n.cfg.Name, "error", err)
			return nil
		case ctx.Err() != nil || errors.Is(err, ring.ErrSettings):
			return fmt.Errorf("keyway: %s at %s is not ready: %w", n.cfg.Name, n.cfg.Advertise, err)
		}
		if err := n.worker.Ready(); err != nil {
			n.log.Warn("not ready yet", "error", err)
		}
	}
}

// close does what Close says.
func (n *Node) close() error {
	n.finish(nil)
	if n.host != nil {
		n.host.Retire()
	}
	err := n.Drain(context.Background())
	end, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if shutdown := n.server.Shutdown(end); shutdown != nil && !errors.Is(shutdown, context.DeadlineExceeded) {
		err = errors.Join(err, shutdown)
	}
	n.release()
	if err != nil {
		n.log.Error("the node did not shut down cleanly", "error", err)
	}
	return err
}

// onRelease makes release call end, before the ends that were given earlier.
func (n *Node) onRelease(end func()) { n.ends = append(n.ends, end) }

// release closes what is open, in the opposite order of start.
func (n *Node) release() {
	n.finish(nil)
	if door := n.door.Load(); door != nil {
		door.Close()
	}
	for _, end := range slices.Backward(n.ends) {
		end()
	}
}
