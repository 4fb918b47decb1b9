package main

import (
	"crypto/tls"
	"io"
	"net/netip"

	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/cli"
)

const about = `Router is Keyway's front door: it takes a key from each request and sends the
request to the worker that owns the key. It finds the workers by gossip. While a
key has no owner, since workers come, go or die, it holds the key's requests.`

type options struct {
	cli.Common
	listen          []string
	admin           string
	tlsCert, tlsKey string
	trustedSpecs    []string
	config          router.Config
}

func parseOptions(args []string, stdout io.Writer) (*options, error) {
	o, defaults := new(options), router.Config{}.WithDefaults()
	f := cli.NewFlags("router", about)
	f.Group("Requests")
	f.Addresses(&o.listen, "listen", []string{"127.0.0.1:8080"}, "`addresses` that take requests, HTTP/1.1 and HTTP/2: host:port, where port 0 takes a free one, or unix:///path; several are separated by commas, or the flag is repeated")
	o.Define(f, meeting, nil)
	f.Group("Requests")
	f.List(&o.trustedSpecs, "trusted-proxies", ", ", nil, "`networks` such as 10.0.0.0/8 or addresses, separated by commas, of proxies before the router: what they say in Forwarded, X-Forwarded-... and X-Real-IP is passed on; what others say there is replaced")
	f.Duration(&o.config.Hold, "hold", defaults.Hold, 0, "`time` that a request waits while its key has no reachable owner, before it fails with 503; 0: it fails at once")
	f.Int(&o.config.MaxHeld, "max-held", defaults.MaxHeld, 1, "`number` of requests that wait so at one time")
	f.Int(&o.config.MaxConnections, "max-connections", 0, 0, "`number` of clients' connections at one time; further ones wait to be accepted, and those without a request for longest are ended; 0: half of the files that the process may have open (ulimit -n) less 64, or an eighth if that is more")
	f.Int(&o.config.ReplayBytes, "replay-bytes", defaults.ReplayBytes, 1, "`bytes` of memory for what has come of bodies, beyond 4 KiB of each, so that their requests can be sent to another worker; a client may have a quarter of it. What does not fit is streamed")
	f.Int(&o.config.MinBodyRate, "min-body-rate", defaults.MinBodyRate, 1, "`bytes` a second that a client has to send of a body, on average over a minute; one that is slower is answered with 408")
	f.String(&o.tlsCert, "tls-cert", "", "`file` with the certificate chain in PEM, for HTTPS; needs --tls-key")
	f.String(&o.tlsKey, "tls-key", "", "`file` with the certificate's private key in PEM")
	f.Address(&o.admin, "admin", "127.0.0.1:8081", "`address` of /healthz, /readyz, /ring and /lookup; not for the public")
	if err := o.Parse(f, args, stdout); err != nil {
		return nil, err
	}
	return o, o.check()
}

func (o *options) check() error {
	for _, spec := range o.trustedSpecs {
		network, err := parseNetwork(spec)
		if err != nil {
			return cli.Usagef("--trusted-proxies: %q is neither a network such as 10.0.0.0/8 nor an address", spec)
		}
		o.config.TrustedProxies = append(o.config.TrustedProxies, network)
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
