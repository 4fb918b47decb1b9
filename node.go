package keyway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/lockfile"
	"github.com/keyway-go/keyway/internal/offered"
	"github.com/keyway-go/keyway/ring/gossip"
)

// Execution is one admitted run of a function: it holds its key, and has a
// fencing token and a context that ends with its ownership.
type Execution = gateway.Execution

// Node is this process's place in a cluster: it owns a share of the keys. Start one with [Start].
// Any number of goroutines may call its methods. Close ends it for good.
//
// Methods of the Client, such as Do and Lock, work for the keys of all nodes. For a key of this
// node Do makes no call; for a key of another node it costs one round trip to that node.
type Node struct {
	*Client

	cfg Config
	log *slog.Logger

	lock     *lockfile.File
	listener net.Listener
	admin    net.Listener // nil for none
	host     *offered.Host
	members  *gossip.Cluster
	store    Store
	worker   *worker.Worker
	handler  handler
	server   *worker.Server
	door     atomic.Pointer[router.Router] // of Handler; nil for none
	pages    adminPages
	ends     []func() // of what start has begun, see onRelease

	serving  sync.WaitGroup
	balancer sync.WaitGroup

	over   context.Context // ends when Close begins, or when a server has ended, which is its cause then
	finish context.CancelCauseFunc

	leaving   sync.Once // guards that it is logged
	closeOnce func() error
}

// Start makes this process a node of its cluster. It joins gossip, opens the store, takes requests,
// and waits until the node serves all keys that the ring gives it. That takes about a second. It
// takes one TTL (10 s) if a member has died, or if the store is empty or was started since, unless
// Config.NewCluster says that it is new. If the app at Config.Upstream does not answer, Start
// returns and logs that, and the node has no keys until it does. The context bounds only Start
// itself, whose error then names the step that it waited for. A node that has a session by then
// leaves the cluster as by Close before Start returns. The caller must call [Node.Close].
func Start(ctx context.Context, cfg Config) (*Node, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, log: cfg.Logger}
	n.closeOnce = sync.OnceValue(n.close)
	n.over, n.finish = context.WithCancelCause(context.Background())
	if err := n.start(ctx); err != nil {
		if n.server != nil && n.worker.Status().SessionSlackSeconds > 0 {
			_ = n.Close() // the node may have keys and executions; Close logs its error
		} else {
			n.release()
		}
		return nil, err
	}
	return n, nil
}

// Share works at the node that owns key; elsewhere its error is a [*NotOwnerError],
// which names the owner. It runs fn as [Node.Do] does, once for equal reads: when fn ends, calls with
// the same key, op and T that wait for the key get its result, with shared set. The result
// is no older than the call. See worker.Share.
func Share[T any](ctx context.Context, n *Node, key, op string, fn func(Execution) (T, error)) (v T, shared bool, err error) {
	return worker.Share(ctx, n.worker, key, op, fn)
}

// Serve passes requests to h with their keys held, one request of a key at a time, until ctx ends.
// Then it closes the node as [Node.Close] does, and returns that error. It returns earlier if the
// listener fails. h sees the headers and context that worker.Worker.Handler describes. A handler
// made by the node's own worker is used unchanged. A nil h stands for Config.Handler, which takes
// requests even while the node joins.
func (n *Node) Serve(ctx context.Context, h http.Handler) error {
	if h != nil {
		n.handler.set(n.worker, h)
	}
	select {
	case <-n.over.Done():
		if cause := context.Cause(n.over); cause != context.Canceled {
			return cause
		}
	case <-ctx.Done():
	}
	return n.Close()
}

// Close leaves the cluster: it hands over the node's keys, waits up to Config.DrainTimeout (30 s)
// for running executions, and closes everything that Start has opened. It takes no context, since a
// program that ends by a signal closes its node when its own context is over. The error, which is
// also logged, says what still ran; the keys of that are free after one TTL. Further calls wait for
// the first one and return its error.
func (n *Node) Close() error { return n.closeOnce() }

// Drain leaves the ring for good. It hands over the node's keys and waits for running executions,
// up to Config.DrainTimeout or until ctx ends; then the error says what still runs. The node
// continues to answer, and sends requests elsewhere; [Node.Close] ends it. Drain may be called more
// than once: each call waits for the same end. POST /drain at Config.Admin does less: it makes the
// worker leave the ring until POST /undrain.
func (n *Node) Drain(ctx context.Context) error {
	n.leaving.Do(func() { n.log.Info("leaving: handing the partitions over", "grace", n.cfg.DrainTimeout) })
	ctx, cancel := context.WithTimeout(ctx, n.cfg.DrainTimeout)
	defer cancel()
	return n.worker.Drain(ctx)
}

// leaveRing answers POST /drain.
func (n *Node) leaveRing(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.DrainTimeout)
	defer cancel()
	return n.worker.LeaveRing(ctx)
}

// Local returns the worker inside the node. Its Do and TryDo run a function only if
// this node owns the key; otherwise their error is a [*NotOwnerError].
func (n *Node) Local() *worker.Worker { return n.worker }

// Members returns the node's view of the cluster.
func (n *Node) Members() gateway.Members { return n.members }

// Describe implements [prometheus.Collector].
func (n *Node) Describe(ch chan<- *prometheus.Desc) {
	for _, part := range n.collectors() {
		part.Describe(ch)
	}
}

// Collect implements [prometheus.Collector]: it collects the metrics of the node's worker,
// membership and Handler, which docs/metrics.md describes. Config.Admin serves them at /metrics;
// register the node in a registry of the program to have them there. Several nodes of one process
// then need a distinguishing label each, such as [prometheus.WrapRegistererWith] adds.
func (n *Node) Collect(ch chan<- prometheus.Metric) {
	for _, part := range n.collectors() {
		part.Collect(ch)
	}
}

func (n *Node) collectors() []prometheus.Collector {
	parts := []prometheus.Collector{n.worker, n.members}
	if door := n.door.Load(); door != nil {
		parts = append(parts, door)
	}
	return parts
}

// Addr returns the host:port that takes requests.
func (n *Node) Addr() string { return n.listener.Addr().String() }

// AdminAddr returns the host:port of Config.Admin, "" if there is none.
func (n *Node) AdminAddr() string {
	if n.admin == nil {
		return ""
	}
	return n.admin.Addr().String()
}

// GossipAddr returns the host:port at which others can join the node.
func (n *Node) GossipAddr() string { return n.members.Addr() }

// ended notes the end of a server, which is a failure unless it was closed.
func (n *Node) ended(l net.Listener, err error) {
	if !errors.Is(err, http.ErrServerClosed) {
		n.finish(fmt.Errorf("keyway: the server on %s ended: %w", l.Addr(), err))
	}
}
