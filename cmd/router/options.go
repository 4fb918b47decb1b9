package main

import (
	"io"

	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/door"
)

const about = `Router is Keyway's front door: it takes a key from each request and sends the
request to the worker that owns the key. It finds the workers by gossip. While a
key has no owner, since workers come, go or die, it holds the key's requests.`

// options are the flags of cmd/router.
type options struct {
	cli.Common
	door       door.Options
	listen     []string
	admin      string
	locks      []string // of --locks; none for no lock service
	locksToken string   // of --locks-token or its file; "" for none
}

func parseOptions(args []string, stdout io.Writer) (*options, error) {
	o, defaults := new(options), router.Config{}.WithDefaults()
	f, config := cli.NewFlags("router", about), &o.door.Config
	f.Group("Requests")
	f.Addresses(&o.listen, "listen", []string{"127.0.0.1:8080"}, "`addresses` that take requests, HTTP/1.1 and HTTP/2: host:port, where port 0 takes a free one, or unix:///path; several are separated by commas, or the flag is repeated")
	o.Define(f, meeting, nil)
	o.door.Define(f, "Requests")
	f.Group("Requests")
	f.Int(&config.MaxConnections, "max-connections", 0, 0, "`number` of clients' connections at one time. At the bound further ones wait to be accepted, and the longest idle ones are closed. 0: half of the files that the process may have open (ulimit -n) less 128, or a quarter if that is more")
	f.Int64(&config.MaxBody, "max-body", defaults.MaxBody, 1, "`bytes` that a body may have, except in gRPC; a longer one gets 413")
	f.Int64(&config.BodyFiles, "body-files", 0, 0, "`bytes` of temporary files for the parts of bodies that are not in memory; one client may use a quarter. A body that does not fit gets 503. 0: 4 GiB, or half of the free space in --body-dir if that is less")
	f.String(&config.BodyDir, "body-dir", "", "`directory` of temporary files, on a disk rather than in memory; empty: that of the system (TMPDIR or /tmp), and if no file can be made there, bodies are in memory only, as far as --replay-bytes allows")
	f.Address(&o.admin, "admin", defaultAdmin, "`address` of the pages for operators, which router ctl asks too; not for the public")
	f.Addresses(&o.locks, "locks", nil, "`addresses` of the lock service, by which clients in any language hold keys (docs/lock-service.md): host:port or unix:///path, several separated by commas; over TLS with --tls-cert. None: there is no lock service")
	f.Token(&o.locksToken, "locks-token", "`token` that requests to --locks need, in the header Authorization: Bearer; empty: they must come from this machine")
	if err := o.Parse(f, args, stdout); err != nil {
		return nil, err
	}
	if err := o.door.Read(f, o.Keys); err != nil {
		return nil, err
	}
	config.Upgrades, config.PeerTLS = o.Upgrades, o.PeerTLS
	o.Gossip.Settings.KeySource = config.Routes.KeySource()
	return o, nil
}
