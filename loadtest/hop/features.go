//go:build linux

package main

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"os"
	"path/filepath"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/policy"
	"github.com/keyway-go/keyway/internal/test/certs"
	"github.com/keyway-go/keyway/loadtest/internal/load"
	"github.com/keyway-go/keyway/ring"
)

// routesFile has the routes of routers that are measured.
//
//go:embed routes.yaml
var routesFile []byte

// features are what the members of a cluster are measured with; the zero value is for
// none.
type features struct {
	routes    string // path of a file
	gossipKey []byte // nil for none
}

// allFeatures returns everything that costs something for each request or connection:
// routes with limits and rates, which nothing exceeds, and proofs by a gossip key.
func allFeatures(dir string) (features, error) {
	f := features{routes: filepath.Join(dir, "routes.yaml"), gossipKey: make([]byte, 32)}
	_, _ = rand.Read(f.gossipKey) // never fails
	return f, os.WriteFile(f.routes, routesFile, 0o600)
}

// link returns how to speak to a sidecar of a cluster as a router with these features.
func (f features) link(cluster string) *load.Link {
	l := &load.Link{Cluster: cluster, Digest: ring.Settings{Cluster: cluster}.WithDefaults().Digest()}
	if f.gossipKey != nil {
		secret, _ := hkdf.Key(sha256.New, f.gossipKey, nil, "keyway link 3", 32) // never fails, as docs/link.md has it
		l.Secrets, l.Policy, l.Prefix = [][]byte{secret}, benchPolicy(), "bench:"
	}
	return l
}

// benchPolicy is what routers ask for with requests of the route "bench". A worker that
// does not understand it refuses them.
func benchPolicy() []byte {
	p := policy.Policy{Route: "bench", Timeout: 20 * time.Second, MaxWait: 10 * time.Second, QueuePerKey: 1000, Rate: policy.Rate{PerSecond: 100_000, Burst: 100_000}}
	return p.Append(nil)
}

// keyring returns the keys of gossip.
func (f features) keyring() [][]byte {
	if f.gossipKey == nil {
		return nil
	}
	return [][]byte{f.gossipKey}
}

// memberArgs are flags of any member.
func (f features) memberArgs() []string {
	if f.gossipKey == nil {
		return nil
	}
	return []string{"--gossip-key", hex.EncodeToString(f.gossipKey)}
}

// routerArgs are flags of a router.
func (f features) routerArgs() []string {
	if f.routes == "" {
		return nil
	}
	return append(f.memberArgs(), "--routes", f.routes)
}

// peerTLS makes a certificate of members in dir, and returns it with the flags of members that use it.
func peerTLS(dir string) (peers gateway.PeerTLSConfig, args []string, err error) {
	ca, err := certs.NewCA(dir, "members")
	if err != nil {
		return peers, nil, err
	}
	peers.CAFile = ca.File
	peers.CertFile, peers.KeyFile, err = ca.Issue(dir, "member", nil)
	return peers, []string{"--peer-cert", peers.CertFile, "--peer-key", peers.KeyFile, "--peer-ca", peers.CAFile}, err
}
