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
	member  []string // flags of any member
	routes  []string // flags of what takes requests from clients
	keyring [][]byte // of gossip
	link    load.Link
}

// allFeatures returns everything that costs something for each request or connection:
// routes with limits and rates, which nothing exceeds, and proofs by a gossip key.
func allFeatures(dir string) (features, error) {
	file, key := filepath.Join(dir, "routes.yaml"), make([]byte, 32)
	_, _ = rand.Read(key)                                            // never fails
	secret, _ := hkdf.Key(sha256.New, key, nil, "keyway link 3", 32) // never fails, as docs/link.md has it
	return features{
		member: []string{"--gossip-key", hex.EncodeToString(key)}, routes: []string{"--routes", file}, keyring: [][]byte{key},
		link: load.Link{Secrets: [][]byte{secret}, Policy: benchPolicy(), Prefix: "bench:"},
	}, os.WriteFile(file, routesFile, 0o600)
}

// linkTo returns how to speak to a sidecar of a cluster as a router with these features.
func (f features) linkTo(cluster string) *load.Link {
	l := f.link
	l.Cluster, l.Digest = cluster, ring.Settings{Cluster: cluster}.WithDefaults().Digest()
	return &l
}

// benchPolicy is what routers ask for with requests of the route "bench". A worker that
// does not understand it refuses them.
func benchPolicy() []byte {
	p := policy.Policy{Route: "bench", Timeout: 20 * time.Second, MaxWait: 10 * time.Second, QueuePerKey: 1000, Rate: policy.Rate{PerSecond: 100_000, Burst: 100_000}}
	return p.Append(nil)
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
