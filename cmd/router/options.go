package main

import (
	"io"
	"net/netip"
	"time"

	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/accesslog"
	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/routes"
)

const about = `Router is Keyway's front door: it takes a key from each request and sends the
request to the worker that owns the key. It finds the workers by gossip. While a
key has no owner, since workers come, go or die, it holds the key's requests.`

// options are the flags of cmd/router. After parsing, only routesFile and public change: they are
// read again.
type options struct {
	cli.Common
	listen       []string
	admin        string
	locks        []string    // of --locks; none for no lock service
	locksToken   string      // of --locks-token or its file; "" for none
	public       certificate // of --tls-cert
	trustedSpecs []string
	proxySpecs   []string
	routesFile   routesFile // of --routes
	withoutKey   string
	notice       time.Duration // of --drain-notice
	config       router.Config
	accessLog    accesslog.Config // File is "" for none
}

func parseOptions(args []string, stdout io.Writer) (*options, error) {
	o, defaults := new(options), router.Config{}.WithDefaults()
	f := cli.NewFlags("router", about)
	f.Group("Requests")
	f.Addresses(&o.listen, "listen", []string{"127.0.0.1:8080"}, "`addresses` that take requests, HTTP/1.1 and HTTP/2: host:port, where port 0 takes a free one, or unix:///path; several are separated by commas, or the flag is repeated")
	o.Define(f, meeting, nil)
	f.Group("Requests")
	f.String(&o.routesFile.name, "routes", "", "`file` in YAML that says which requests are taken, where they have their keys, and how each kind is treated (docs/routes.md), in place of --key; it is read again when it changes, and on SIGHUP. router check FILE looks for mistakes")
	f.String(&o.withoutKey, "without-key", "reject", "`what` becomes of a request that has no key: reject (400), any (it runs at any worker with no key held), or http://host:port, a server that gets it")
	f.List(&o.trustedSpecs, "trusted-proxies", ", ", nil, "`networks` such as 10.0.0.0/8 or addresses, separated by commas, of proxies before the router: what they say in Forwarded, X-Forwarded-... and X-Real-IP is passed on; what others say there is replaced")
	f.List(&o.proxySpecs, "proxy-protocol", ", ", nil, "`networks` such as 10.0.0.0/8 or addresses, separated by commas, of peers that begin each connection with a header of the PROXY protocol, version 1 or 2: the client's address is the one there")
	f.Duration(&o.config.Hold, "hold", defaults.Hold, 0, "`time` that a request waits while its key has no reachable owner, before it fails with 503; 0: it fails at once")
	f.Int(&o.config.MaxHeld, "max-held", defaults.MaxHeld, 1, "`number` of requests that may wait at one time because of --hold; more get 503")
	f.Int(&o.config.MaxConnections, "max-connections", 0, 0, "`number` of clients' connections at one time. At the bound further ones wait to be accepted, and the longest idle ones are closed. 0: half of the files that the process may have open (ulimit -n) less 128, or a quarter if that is more")
	f.Int(&o.config.MaxConnectionsPerClient, "max-connections-per-client", 0, 0, "`number` of connections of one client (an IPv4 address or an IPv6 network of 64 bits) at one time. A further one closes an idle one of the same client, or gets 429. Trusted proxies and clients on this machine are not bounded. 0: a quarter of --max-connections, at least 64")
	f.Int(&o.config.ReplayBytes, "replay-bytes", defaults.ReplayBytes, 1, "`bytes` of memory for the bodies of requests, up to 64 KiB of each; bodies of up to 4 KiB do not count. One client may use a quarter. The rest goes to temporary files")
	f.Int64(&o.config.MaxBody, "max-body", defaults.MaxBody, 1, "`bytes` that a body may have, but for those of gRPC; a longer one is answered with 413")
	f.Int64(&o.config.BodyFiles, "body-files", 0, 0, "`bytes` of temporary files for what of bodies is not in memory; a client may have a quarter of it. What does not fit is answered with 503; 0: 4 GiB, or half of what is free in --body-dir if that is less")
	f.String(&o.config.BodyDir, "body-dir", "", "`directory` of temporary files, on a disk rather than in memory; empty: that of the system (TMPDIR or /tmp), and if no file can be made there, bodies are in memory only, as far as --replay-bytes allows")
	f.Int(&o.config.MinBodyRate, "min-body-rate", defaults.MinBodyRate, 1, "`bytes` a second that a client has to send of a body, on average over a minute; one that is slower is answered with 408")
	f.String(&o.public.certFile, "tls-cert", "", "`file` with the certificate chain in PEM, for HTTPS; needs --tls-key. Both are read again when they change, and on SIGHUP")
	f.String(&o.public.keyFile, "tls-key", "", "`file` with the certificate's private key in PEM")
	f.Address(&o.admin, "admin", defaultAdmin, "`address` of the pages for operators, which router ctl asks too; not for the public")
	f.Addresses(&o.locks, "locks", nil, "`addresses` of the lock service, by which clients in any language hold keys (docs/lock-service.md): host:port or unix:///path, several separated by commas; over TLS with --tls-cert. None: there is no lock service")
	f.String(&o.locksToken, "locks-token", "", "`token` that requests to --locks need, in the header Authorization: Bearer; empty: they must come from this machine")
	var tokenFile string
	f.String(&tokenFile, "locks-token-file", "", "`file` with the token of --locks-token, which no list of processes shows then")
	f.Group("Ownership")
	f.Duration(&o.notice, "drain-notice", time.Second, 0, "`time` after SIGTERM in which the router still takes connections and requests, while /readyz answers 503 and clients are told to connect anew. It is part of --drain-timeout. Set it longer than your load balancer takes to notice")
	f.Group("Log")
	f.String(&o.accessLog.File, "access-log", "", "`file` that gets a line of JSON for each request, - for standard output (docs/observability.md); it is opened anew on SIGHUP. Lines have clients' paths, without queries; empty: none")
	f.Int(&o.accessLog.Sample, "access-log-sample", 1, 1, "`number` of requests of which one is logged, drawn by chance; answers of 500 and above are always logged")
	f.Duration(&o.accessLog.Slow, "access-log-slow", 0, 0, "`time` from which on a request is always logged, whatever --access-log-sample says; 0: none")
	f.Bool(&o.accessLog.Keys, "access-log-keys", "put keys into the access log, and not only their hashes")
	if err := o.Parse(f, args, stdout); err != nil {
		return nil, err
	}
	if err := o.readRoutes(f); err != nil {
		return nil, err
	}
	var err error
	if o.locksToken, err = cli.Token("locks-token", o.locksToken, tokenFile); err != nil {
		return nil, err
	}
	return o, o.check()
}

// readRoutes reads the file of --routes, or makes one route of --key and --without-key.
func (o *options) readRoutes(f *cli.Flags) error {
	without, err := routes.ParseWithoutKey(o.withoutKey)
	switch {
	case err != nil:
		return cli.Usagef("--without-key: %v", err)
	case o.routesFile.name == "":
		o.config.Routes = routes.ForKeys(o.Keys, without)
	case f.Stated("key"):
		return cli.Usagef("--key and --routes exclude each other: the file says where keys stand")
	case o.withoutKey != "reject":
		return cli.Usagef("--without-key and --routes exclude each other: the file says what becomes of requests without a key")
	default:
		if o.config.Routes, err = o.routesFile.load(); err != nil {
			return cli.Usagef("--routes: %s", oneLine(err))
		}
	}
	o.Gossip.Settings.KeySource = o.config.Routes.KeySource()
	return nil
}

func (o *options) check() error {
	var err error
	if o.config.TrustedProxies, err = parseNetworks("trusted-proxies", o.trustedSpecs); err != nil {
		return err
	}
	if o.config.ProxyProtocol, err = parseNetworks("proxy-protocol", o.proxySpecs); err != nil {
		return err
	}
	return o.public.load()
}

func parseNetworks(flagName string, specs []string) (networks []netip.Prefix, err error) {
	for _, spec := range specs {
		network, err := parseNetwork(spec)
		if err != nil {
			return nil, cli.Usagef("--%s: %q is neither a network such as 10.0.0.0/8 nor an address", flagName, spec)
		}
		networks = append(networks, network)
	}
	return networks, nil
}

// parseNetwork reads a network or a single address.
func parseNetwork(s string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(s); err == nil {
		return addr.Unmap().Prefix(addr.Unmap().BitLen())
	}
	return netip.ParsePrefix(s)
}
