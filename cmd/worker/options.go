package main

import (
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/door"
	"github.com/keyway-go/keyway/ring/gossip"
)

const about = `Worker owns a share of the keys and runs one request at a time for each of them:
in front of an app (--upstream), or with a small demo app. Routers send it
requests; workers and routers find each other by gossip.`

// options are the flags of cmd/worker.
type options struct {
	cli.Common
	node      keyway.Config // without what Common has
	door      door.Options  // of public
	public    []string      // of --public; none for no door
	listen    string
	supervise bool
}

func parseOptions(args []string, stdout io.Writer) (*options, error) {
	o, defaults := new(options), worker.Limits{}.WithDefaults()
	node, limits, app := &o.node, &o.node.Limits, &o.node.App
	var upstream, onRedisLoss, placement string
	f := cli.NewFlags("worker", about)
	f.Group("Requests")
	f.Address(&o.listen, "listen", "127.0.0.1:0", "`address` that takes requests from routers and other members; port 0 takes a free one")
	f.Addresses(&o.public, "public", nil, "`addresses` that take requests from clients, for all keys, as a router does (docs/routing.md): host:port or unix:///path, several separated by commas. Requests for keys of other workers are sent on to these. None: clients need a router")
	f.String(&node.Advertise, "advertise", "", "host or host:port `address` at which routers reach it, if it is not --listen")
	f.String(&upstream, "upstream", "", "`URL` of the app to send requests on to, http://host:port, h2c://host:port or unix:///path; without it the demo app answers")
	f.String(&app.UpstreamHealth, "upstream-health", "", "`path` of the app of --upstream, such as /healthz, that answers GET with 2xx or 3xx within a second while the app is up: the worker takes keys only then. Default: it is up if it accepts a connection")
	f.Int(&limits.AppConnections, "app-connections", defaults.AppConnections, 1, "`number` of connections to the app of --upstream for simple requests from routers; for others, such as upgraded ones, four times as many. A request over the bound waits for 5 s, and gets 503 then")
	f.Duration(&limits.Timeout, "timeout", defaults.Timeout, time.Millisecond, "`time` that an execution of a request may take, from the moment at which it gets its key; then its client gets 504, and with --upstream the connection to the app is given up")
	f.Int64(&limits.AnswerMemory, "answer-memory", defaults.AnswerMemory, 1, "`bytes` of memory for the parts of answers that wait for their clients to read them; one client may use a quarter. The key of a request is free as soon as its app has answered")
	f.Int64(&limits.AnswerFiles, "answer-files", 0, 0, "`bytes` of temporary files for such parts beyond 64 KiB of an answer, or beyond --answer-memory; at most 1 GiB for one answer, and a quarter for one client. An app whose answer does not fit waits with its key held, for as long as --timeout allows. 0: 4 GiB, or half of the free space in the directory of temporary files (TMPDIR) if that is less")
	f.Int64(&limits.MaxBody, "max-body", defaults.MaxBody, 1, "`bytes` that the body of a request over plain HTTP may have, except in gRPC; a longer one gets 413")
	f.Int64(&limits.BodyFiles, "body-files", 0, 0, "`bytes` of temporary files for the parts of such bodies beyond 64 KiB of each, or beyond 64 MiB of all. A body that does not fit gets 503. 0: 4 GiB, or half of the free space in --body-dir if that is less")
	f.String(&limits.BodyDir, "body-dir", "", "`directory` of those files, on a disk rather than in memory; empty: that of the system (TMPDIR or /tmp)")
	f.Duration(&limits.AbandonedTimeout, "abandoned-timeout", defaults.AbandonedTimeout, time.Second, "`time` for which the app of --upstream may go on with a request whose client has left, before its connection is given up and the key is free")
	f.String(&app.Batch, "batch", "", "`path` of the app of --upstream, such as /batch, to which the POST requests with JSON that wait for one key are sent together, as an array (docs/batch.md). Default: each by itself")
	f.Int(&app.Batches.MaxItems, "batch-max", 256, 1, "`number` of requests that are sent to --batch together")
	f.Duration(&app.Batches.Linger, "batch-linger", 0, 0, "`time` for which a batch waits for more requests, with its key held")
	f.Int(&limits.QueuePerKey, "queue-per-key", defaults.QueuePerKey, 1, "`number` of requests that may wait for one key; more get 429")
	f.Duration(&limits.MaxWait, "max-wait", defaults.MaxWait, time.Millisecond, "`time` for which a request may wait for its key; then it gets 503")
	f.Duration(&limits.MaxLease, "max-lease", defaults.MaxLease, time.Second, "`time` for which a member may lock a key without renewing the lock; a lock for longer than --session-ttl is written to the store, and outlives this worker")
	f.Int(&limits.Queue, "queue", defaults.Queue, 1, "`number` of requests that may wait for keys in all; more get 429. Those of one router are at most 8,192, half of what its link carries")
	f.Int(&limits.MaxConnections, "max-connections", 0, 0, "`number` of connections at one time: an eighth for routers' links, an eighth for new ones, the rest for HTTP. At its bound further HTTP connections wait, and the longest idle ones are closed. 0: half of the files that the process may have open (ulimit -n) less 128, or a quarter if that is more")
	f.Bool(&node.Direct, "direct", "also take requests that come without a router; --key says where their keys are. Without it they get 403, since anyone who reaches --listen could hold any key")
	f.Address(&node.Admin, "admin", "", "`address` of the pages for operators, which worker ctl asks too; not for the public; default none")
	f.Group("Cluster")
	f.String(&node.Name, "name", "", "unique `name`, which places the worker on the ring; keep it across restarts. Default: the host's name and the port")
	f.Float(&limits.Weight, "weight", defaults.Weight, 0.01, 100, "`number`, at most 100, that says how much load the worker can take, relative to others: 2 is twice as much as 1")
	o.Define(f, "127.0.0.1:0", []string{"127.0.0.1:" + gossip.DefaultPort})
	f.Group("Ownership")
	f.Choice(&onRedisLoss, "on-redis-loss", "`what` to do when Redis or etcd cannot be reached: stop (admit nothing from 0.7 of --session-ttl on) or serve (go on while the view of the cluster does not change: unsafe when the network is cut in two)", "stop", "serve")
	f.Choice(&placement, "placement", "`whether` the worker balances the load of the cluster when it is its turn (docs/placement.md): on or off. It goes by the placements that others make in either case", "on", "off")
	f.String(&node.LockFile, "lock-file", "", "`path` of a file that the worker keeps locked while it lives. A free lock proves to its next start that it is dead, so that its partitions are taken over at once; up to 0.15 of --session-ttl later if requests were at the app of --upstream, which must end those whose connection is closed")
	f.Bool(&o.supervise, "supervise", "run the worker as a child of this process, and start it again at once when it dies; needs --lock-file, and Linux")
	f.String(&node.Witness, "witness", "", "`pattern` of the lock files of other workers of this machine, such as /run/keyway/*.lock: when one of them dies, its partitions are taken over at once; up to 0.15 of --session-ttl later if requests were at its app")
	f.Need("public", func() { o.door.Define(f, "Public") })
	if err := o.Parse(f, args, stdout); err != nil {
		return nil, err
	}
	node.ServeWithoutStore, node.NoPlacement = onRedisLoss == "serve", placement == "off"
	if len(o.public) > 0 {
		door := &o.door.Config
		door.MaxConnections, door.MaxBody, door.BodyFiles, door.BodyDir, door.Upgrades = limits.MaxConnections, limits.MaxBody, limits.BodyFiles, limits.BodyDir, o.Upgrades
		if err := o.door.Read(f, o.Keys); err != nil {
			return nil, err
		}
	}
	if upstream != "" {
		u, err := url.Parse(upstream)
		if err != nil || !(((u.Scheme == "http" || u.Scheme == "h2c") && u.Host != "") || (u.Scheme == "unix" && u.Path != "")) {
			return nil, cli.Usagef("--upstream is %q, want http://host:port, h2c://host:port or unix:///path", upstream)
		}
		node.Upstream = u
	}
	switch {
	case o.supervise && node.LockFile == "":
		return nil, cli.Usagef("--supervise needs --lock-file, which proves that the worker is dead")
	case app.Batch != "" && node.Upstream == nil:
		return nil, cli.Usagef("--batch is a path of an app: say where that is with --upstream")
	case app.UpstreamHealth != "" && node.Upstream == nil:
		return nil, cli.Usagef("--upstream-health is a path of an app: say where that is with --upstream")
	case app.UpstreamHealth != "" && !strings.HasPrefix(app.UpstreamHealth, "/"):
		return nil, cli.Usagef("--upstream-health is %q, want a path such as /healthz", app.UpstreamHealth)
	case app.Batch != "" && !strings.HasPrefix(app.Batch, "/"):
		return nil, cli.Usagef("--batch is %q, want a path such as /batch", app.Batch)
	}
	return o, nil
}
