// Package door is for the programs that take requests from clients: cmd/router, and cmd/worker with
// --public. It has the flags that both have for that, and serves a router.Router as they say.
//
// options.go has the flags; door.go serves. certificate.go reads certificates.
package door

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/accesslog"
	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/routes"
)

// Options are the flags. After Read, only the certificate changes.
type Options struct {
	Config router.Config // without what the process and the log say

	notice     time.Duration // of --drain-notice
	cert       certificate   // of --tls-cert
	routesFile string        // of --routes
	routesSeen *cli.Files    // likewise; nil for none
	withoutKey string
	accessLog  accesslog.Config // File is "" for none
}

// Define defines the flags: in that group, and in the groups Ownership and Log.
func (o *Options) Define(f *cli.Flags, group string) {
	defaults := router.Config{}.WithDefaults()
	f.Group(group)
	f.String(&o.routesFile, "routes", "", "`file` in YAML that says which requests are taken, where they have their keys, and how each kind is treated (docs/routes.md), in place of --key; it is read again when it changes, and on SIGHUP. router check FILE looks for mistakes")
	f.String(&o.withoutKey, "without-key", "reject", "`what` happens to a request that has no key: reject (400), any (it runs at any worker with no key held), or http://host:port, a server that gets it")
	cli.AddList(f, &o.Config.TrustedProxies, "trusted-proxies", ", ", nil, "`networks` such as 10.0.0.0/8 or addresses, separated by commas, of proxies in front of this process: their Forwarded, X-Forwarded-... and X-Real-IP are passed on; those of other clients are replaced", parseNetwork)
	cli.AddList(f, &o.Config.ProxyProtocol, "proxy-protocol", ", ", nil, "`networks` such as 10.0.0.0/8 or addresses, separated by commas, of peers that begin each connection with a header of the PROXY protocol, version 1 or 2, which gives the client's address", parseNetwork)
	f.Duration(&o.Config.Hold, "hold", defaults.Hold, 0, "`time` that a request waits while its key has no reachable owner, before it fails with 503; 0: it fails at once")
	f.Int(&o.Config.MaxHeld, "max-held", defaults.MaxHeld, 1, "`number` of requests that may wait at one time because of --hold; more get 503")
	f.Int(&o.Config.MaxConnectionsPerClient, "max-connections-per-client", 0, 0, "`number` of connections of one client (an IPv4 address or an IPv6 network of 64 bits) at one time. A further one closes an idle one of the same client, or gets 429. Trusted proxies and clients on this machine are not bounded. 0: a quarter of all clients' connections, at least 64")
	f.Int(&o.Config.ReplayBytes, "replay-bytes", defaults.ReplayBytes, 1, "`bytes` of memory for the bodies of requests, and for their heads over HTTP/2, up to 64 KiB of each; those of up to 4 KiB do not count. One client may use a quarter. The rest of a body goes to a temporary file")
	f.Int(&o.Config.MinBodyRate, "min-body-rate", defaults.MinBodyRate, 1, "`bytes` a second that a client has to send of a body, on average over a minute; one that is slower is answered with 408")
	f.String(&o.cert.certFile, "tls-cert", "", "`file` with the certificate chain in PEM, for HTTPS, with its key in --tls-key; or without --tls-key a folder of pairs NAME.crt and NAME.key, of which clients get the first one by file name that is for the server name they ask for (SNI), or else the first of all. All are read again when they change, and on SIGHUP")
	f.String(&o.cert.keyFile, "tls-key", "", "`file` with the certificate's private key in PEM")
	f.Group("Ownership")
	f.Duration(&o.notice, "drain-notice", time.Second, 0, "`time` after SIGTERM in which clients' connections and requests are still taken, while /readyz answers 503 and clients are told to connect anew. It is part of --drain-timeout. Set it longer than your load balancer takes to notice")
	f.Group("Log")
	f.String(&o.accessLog.File, "access-log", "", "`file` that gets a line of JSON for each request, - for standard output (docs/observability.md); it is opened anew on SIGHUP. Lines have clients' paths, without queries; empty: none")
	f.Int(&o.accessLog.Sample, "access-log-sample", 1, 1, "`number` of requests of which one is logged, chosen at random; answers of 500 and above are always logged")
	f.Duration(&o.accessLog.Slow, "access-log-slow", 0, 0, "`time` from which on a request is always logged, whatever --access-log-sample says; 0: none")
	f.Bool(&o.accessLog.Keys, "access-log-keys", "put keys into the access log, and not only their hashes")
}

// Read checks the flags, which have been parsed, and reads the files that they name. Keys are those
// of --key.
func (o *Options) Read(f *cli.Flags, keys gateway.KeySources) error {
	o.Config.NoHold = o.Config.Hold == 0
	without, err := routes.ParseWithoutKey(o.withoutKey)
	switch {
	case err != nil:
		return cli.Usagef("--without-key: %v", err)
	case o.routesFile == "":
		o.Config.Routes = routes.ForKeys(keys, without)
	case f.Stated("key"):
		return cli.Usagef("--key and --routes exclude each other: the file says where keys stand")
	case o.withoutKey != "reject":
		return cli.Usagef("--without-key and --routes exclude each other: the file says what becomes of requests without a key")
	default:
		o.routesSeen = cli.NoteFiles(o.routesFile)
		if o.Config.Routes, err = router.LoadRoutes(o.routesFile); err != nil {
			return cli.Usagef("--routes: %s", cli.OneLine(err))
		}
	}
	return o.cert.load()
}

// parseNetwork reads a network or a single address.
func parseNetwork(s string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(s); err == nil {
		return addr.Unmap().Prefix(addr.Unmap().BitLen())
	}
	network, err := netip.ParsePrefix(s)
	if err != nil {
		return network, fmt.Errorf("%q is neither a network such as 10.0.0.0/8 nor an address", s)
	}
	return network, nil
}
