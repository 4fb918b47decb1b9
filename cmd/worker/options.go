package main

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/ring"
)

const about = `Worker owns a share of the keys and runs one request at a time for each of them:
in front of an app (--upstream), or with a small demo app. Routers send it
requests; workers and routers find each other by gossip.`

type options struct {
	listen, advertise, admin     string
	upstreamURL                  string
	keySpecs                     []string
	queue, queuePerKey           int
	maxConnections               int
	appConnections               int
	abandonedTimeout             time.Duration
	upgrades                     []string
	gossip, gossipAdvertise      string
	join                         []string
	name                         string
	settings                     ring.Settings
	gossipKey                    cli.Keyring
	redis, onRedisLoss, lockFile string
	newCluster                   bool
	drainTimeout                 time.Duration
	log                          cli.Log
	upstream                     *url.URL
	keys                         []gateway.KeySource
}

func parseOptions(args []string, stdout io.Writer) (*options, error) {
	o := new(options)
	f := cli.NewFlags("worker", about)
	f.Group("Requests")
	f.Address(&o.listen, "listen", "127.0.0.1:0", "`address` that takes requests; port 0 takes a free one")
	f.String(&o.advertise, "advertise", "", "host or host:port `address` at which routers reach it, if it is not --listen")
	f.String(&o.upstreamURL, "upstream", "", "`URL` of the app to send requests on to, http://host:port or unix:///path; without it the demo app answers")
	f.Int(&o.appConnections, "app-connections", 4096, 1, "`number` of connections to the app of --upstream for plain requests from routers; for others, such as upgraded ones, four times as many. A request over the bound waits for 5 s, and gets 503 then")
	f.Duration(&o.abandonedTimeout, "abandoned-timeout", time.Minute, time.Second, "`time` for which the app of --upstream may go on with a request whose client has left, before its connection is given up and the key is free")
	f.List(&o.keySpecs, "key", "", []string{"header:X-Key"}, "`source` of the key in requests that come without a router: header:NAME, query:NAME, cookie:NAME, path:PATTERN or host; may be repeated")
	f.Int(&o.queuePerKey, "queue-per-key", 1000, 1, "`number` of requests that may wait for one key; more get 429")
	f.Int(&o.queue, "queue", 100_000, 1, "`number` of requests that may wait for keys in all; more get 429. Of a router's requests it is also half of what a link to it carries (2,048 on each of at most 4 links)")
	f.Int(&o.maxConnections, "max-connections", 0, 0, "`number` of connections at one time: an eighth for routers' links, another for new ones, the rest for HTTP, of which further ones wait and those without a request for longest are ended; 0: half of the files that the process may have open (ulimit -n) less 64, or an eighth if that is more")
	f.List(&o.upgrades, "upgrade", ", ", []string{"websocket"}, "`protocols`, separated by commas, to which a client and the app may change by the header Upgrade, which is not passed on with others; none for none. The same as the routers'")
	f.Address(&o.admin, "admin", "", "`address` of /healthz, /readyz, /ring and /lookup; default none")
	f.Group("Cluster")
	f.String(&o.name, "name", "", "unique `name`, which places the worker on the ring; keep it across restarts. Default: the host's name and the port")
	f.String(&o.settings.Cluster, "cluster", ring.DefaultCluster, "`name` of the cluster; members of another one are refused")
	f.Address(&o.gossip, "gossip", "127.0.0.1:0", "`address` for gossip, UDP and TCP")
	f.String(&o.gossipAdvertise, "gossip-advertise", "", "host or host:port `address` at which members reach --gossip, if it is another one")
	f.List(&o.join, "join", ", ", []string{"127.0.0.1:7946"}, "gossip `addresses` of members to join, separated by commas; may be repeated")
	f.Var(&o.gossipKey, "gossip-key", "`keys` that encrypt gossip, 16, 24 or 32 bytes in hex or base64, separated by commas; the first one encrypts")
	f.Int(&o.settings.Ring.Partitions, "partitions", ring.DefaultPartitions, 1, "`number` of partitions, the same on all members and fixed for the life of a cluster")
	f.Group("Ownership")
	f.String(&o.redis, "redis", "", "`URL` of the Redis that keeps who owns what; without it the worker uses the store that a router offers, which is for one machine")
	f.Duration(&o.settings.TTL, "session-ttl", ring.DefaultSessionTTL, ring.MinSessionTTL, "`time` after which a worker that died is taken over, the same on all members")
	f.Choice(&o.onRedisLoss, "on-redis-loss", "`what` to do when Redis cannot be reached: stop (admitting, at 0.7 of --session-ttl) or serve (on, while the view of the cluster does not change: unsafe when the network is cut in two)", "stop", "serve")
	f.Bool(&o.newCluster, "new-cluster", "do not wait for one --session-ttl before the first claim on an empty Redis; only for the very first start of a cluster")
	f.String(&o.lockFile, "lock-file", "", "`path` of a file that is locked while the worker lives, by which its next start proves that it is dead and takes its partitions over at once; with --upstream after 0.15 of --session-ttl, in which the app must have ended requests whose connection is closed")
	f.Duration(&o.drainTimeout, "drain-timeout", 25*time.Second, 0, "`time` for handing over and finishing requests on SIGTERM")
	f.Group("Log")
	o.log.Define(f)
	if err := f.Parse(args, stdout); err != nil {
		return nil, err
	}
	return o, o.check()
}

func (o *options) check() error {
	if slices.Equal(o.upgrades, []string{"none"}) {
		o.upgrades = []string{}
	}
	for _, protocol := range o.upgrades {
		if err := gateway.CheckUpgrade(protocol); err != nil {
			return cli.Usagef("--upgrade: %v", err)
		}
	}
	for _, spec := range o.keySpecs {
		source, err := gateway.ParseKeySource(spec)
		if err != nil {
			return cli.Usagef("--key: %v", err)
		}
		o.keys = append(o.keys, source)
	}
	if err := o.settings.Validate(); err != nil {
		return cli.Usagef("%v", err)
	}
	if o.upstreamURL != "" {
		u, err := url.Parse(o.upstreamURL)
		if err != nil || !((u.Scheme == "http" && u.Host != "") || (u.Scheme == "unix" && u.Path != "")) {
			return cli.Usagef("--upstream is %q, want http://host:port or unix:///path", o.upstreamURL)
		}
		o.upstream = u
	}
	return nil
}

func (o *options) workerName(listen net.Addr) (string, error) {
	if o.name != "" {
		return o.name, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("the host has no name (%w): choose one with --name", err)
	}
	_, port, _ := net.SplitHostPort(listen.String())
	return host + "-" + port, nil
}

// advertised returns where routers reach listen.
func (o *options) advertised(listen net.Addr) (string, error) {
	host, port, err := net.SplitHostPort(listen.String())
	if err != nil {
		return "", err
	}
	if o.advertise != "" {
		if h, p, err := net.SplitHostPort(o.advertise); err == nil {
			return net.JoinHostPort(h, p), nil
		}
		return net.JoinHostPort(o.advertise, port), nil
	}
	if ip := net.ParseIP(host); ip != nil && !ip.IsUnspecified() {
		return listen.String(), nil
	}
	for _, other := range []string{o.gossipAdvertise, o.gossip} {
		h, _, err := net.SplitHostPort(other)
		if err != nil {
			h = other
		}
		if ip := net.ParseIP(h); h != "" && (ip == nil || !ip.IsUnspecified()) {
			return net.JoinHostPort(h, port), nil
		}
	}
	return "", cli.Usagef("--listen %s is every address of this machine: say with --advertise at which one routers reach it", o.listen)
}
