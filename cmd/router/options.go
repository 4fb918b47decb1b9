package main

import (
	"crypto/tls"
	"io"
	"net/netip"
	"slices"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/ring"
)

const about = `Router is Keyway's front door: it takes a key from each request and sends the
request to the worker that owns the key. It finds the workers by gossip. While a
key has no owner, since workers come, go or die, it holds the key's requests.`

type options struct {
	listen, admin           string
	tlsCert, tlsKey         string
	keySpecs                []string
	trustedSpecs            []string
	trusted                 []netip.Prefix
	upgrades                []string
	hold                    time.Duration
	maxHeld                 int
	maxConnections          int
	replayBytes             int
	minBodyRate             int
	gossip, gossipAdvertise string
	join                    []string
	settings                ring.Settings
	gossipKey               cli.Keyring
	redis                   string
	newCluster              bool
	drainTimeout            time.Duration
	log                     cli.Log
	keys                    []gateway.KeySource
}

func parseOptions(args []string, stdout io.Writer) (*options, error) {
	o := new(options)
	f := cli.NewFlags("router", about)
	f.Group("Requests")
	f.Address(&o.listen, "listen", "127.0.0.1:8080", "`address` that takes requests, HTTP/1.1 and HTTP/2; port 0 takes a free one")
	f.List(&o.keySpecs, "key", " ", []string{"header:X-Key"}, "`source` of the key: header:NAME, query:NAME, cookie:NAME, path:PATTERN (such as\npath:/orders/{key}) or host; several, separated by spaces or by repeating the\nflag, are tried in their order. The same on all routers")
	f.List(&o.upgrades, "upgrade", ", ", []string{"websocket"}, "`protocols`, separated by commas, to which a client and the app may change by the\nheader Upgrade, which is not passed on with others; none for none. The same on\nrouters and workers")
	f.List(&o.trustedSpecs, "trusted-proxies", ", ", nil, "`networks` such as 10.0.0.0/8 or addresses, separated by commas, of proxies before\nthe router: what they say in Forwarded, X-Forwarded-... and X-Real-IP is passed on;\nwhat others say there is replaced")
	f.Duration(&o.hold, "hold", 15*time.Second, 0, "`time` that a request waits while its key has no reachable owner, before it fails\nwith 503; 0: it fails at once")
	f.Int(&o.maxHeld, "max-held", 10_000, 1, "`number` of requests that wait so at one time")
	f.Int(&o.maxConnections, "max-connections", 0, 0, "`number` of clients' connections at one time; further ones wait to be accepted, and\nthose without a request for longest are ended; 0: half of the files that the\nprocess may have open (ulimit -n) less 64, or an eighth if that is more")
	f.Int(&o.replayBytes, "replay-bytes", 64<<20, 1, "`bytes` of memory for what has come of bodies, beyond 4 KiB of each, so that their\nrequests can be sent to another worker; a client may have a quarter of it. What\ndoes not fit is streamed")
	f.Int(&o.minBodyRate, "min-body-rate", 1024, 0, "`bytes` a second that a client has to send of a body, on average over a minute; one\nthat is slower is answered with 408; 0: any number")
	f.String(&o.tlsCert, "tls-cert", "", "`file` with the certificate chain in PEM, for HTTPS; needs --tls-key")
	f.String(&o.tlsKey, "tls-key", "", "`file` with the certificate's private key in PEM")
	f.Address(&o.admin, "admin", "127.0.0.1:8081", "`address` of /healthz, /readyz, /ring and /lookup; not for the public")
	f.Group("Cluster")
	f.String(&o.settings.Cluster, "cluster", ring.DefaultCluster, "`name` of the cluster; members of another one are refused")
	f.Address(&o.gossip, "gossip", "127.0.0.1:7946", "`address` for gossip, UDP and TCP")
	f.String(&o.gossipAdvertise, "gossip-advertise", "", "host or host:port `address` at which members reach --gossip, if it is another one")
	f.List(&o.join, "join", ", ", nil, "gossip `addresses` of members to join, separated by commas; may be repeated")
	f.Var(&o.gossipKey, "gossip-key", "`keys` that encrypt gossip, 16, 24 or 32 bytes in hex or base64, separated by\ncommas; the first one encrypts")
	f.Int(&o.settings.Ring.Partitions, "partitions", ring.DefaultPartitions, 1, "`number` of partitions, the same on all members and fixed for the life of a cluster")
	f.Group("Ownership")
	f.String(&o.redis, "redis", "", "`URL` of the Redis that keeps who owns what, the same as the workers'; without it\nthe router runs a store of its own, which is for one machine")
	f.Duration(&o.settings.TTL, "session-ttl", ring.DefaultSessionTTL, ring.MinSessionTTL, "`time` after which a worker that died is taken over, the same on all members")
	f.Bool(&o.newCluster, "new-cluster", "do not wait for one --session-ttl before the first claim on an empty store; only\nfor the very first start of a cluster")
	f.Duration(&o.drainTimeout, "drain-timeout", 25*time.Second, 0, "`time` for finishing requests on SIGTERM")
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
	o.settings.KeySource = gateway.FormatKeySources(o.keys)
	if err := o.settings.Validate(); err != nil {
		return cli.Usagef("%v", err)
	}
	for _, spec := range o.trustedSpecs {
		network, err := parseNetwork(spec)
		if err != nil {
			return cli.Usagef("--trusted-proxies: %q is neither a network such as 10.0.0.0/8 nor an address", spec)
		}
		o.trusted = append(o.trusted, network)
	}
	if (o.tlsCert == "") != (o.tlsKey == "") {
		return cli.Usagef("--tls-cert and --tls-key need each other")
	}
	if o.tlsCert != "" {
		if _, err := tls.LoadX509KeyPair(o.tlsCert, o.tlsKey); err != nil {
			return cli.Usagef("--tls-cert, --tls-key: %v", err)
		}
	}
	return nil
}

// parseNetwork reads a network or a single address.
func parseNetwork(s string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(s); err == nil {
		return addr.Unmap().Prefix(addr.Unmap().BitLen())
	}
	return netip.ParsePrefix(s)
}

// holdTime turns --hold 0 into what gateway takes for no time at all.
func (o *options) holdTime() time.Duration {
	if o.hold == 0 {
		return -1
	}
	return o.hold
}

// bodyRate turns --min-body-rate 0 into what gateway takes for no bound.
func (o *options) bodyRate() int64 {
	if o.minBodyRate == 0 {
		return -1
	}
	return int64(o.minBodyRate)
}
