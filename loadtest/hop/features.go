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

	"github.com/keyway-go/keyway/internal/policy"
	"github.com/keyway-go/keyway/internal/test/certs"
	"github.com/keyway-go/keyway/loadtest/internal/load"
	"github.com/keyway-go/keyway/ring"
)

// routes are the routes of routers that are measured.
//
//go:embed routes.yaml
var routes []byte

// features are what the members of a cluster are measured with; the zero value is for
// none.
type features struct {
	routes    string // path of a file
	gossipKey string // in hex
}

// allFeatures returns everything that costs something for each request or connection:
// routes with limits and rates, which nothing exceeds, and proofs by a gossip key.
func allFeatures(dir string) (features, error) {
	f := features{routes: filepath.Join(dir, "routes.yaml")}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	f.gossipKey = hex.EncodeToString(key)
	return f, os.WriteFile(f.routes, routes, 0o600)
}

// link returns how to speak to a sidecar of a cluster as a router with these features.
func (f features) link(cluster string) *load.Link {
	l := &load.Link{Cluster: cluster, Digest: ring.Settings{Cluster: cluster}.WithDefaults().Digest()}
	if f.gossipKey != "" {
		key, _ := hex.DecodeString(f.gossipKey)
		secret, _ := hkdf.Key(sha256.New, key, nil, "keyway link 3", 32) // never fails, as docs/link.md has it
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

// memberArgs are flags of any member.
func (f features) memberArgs() []string {
	if f.gossipKey == "" {
		return nil
	}
	return []string{"--gossip-key", f.gossipKey}
}

// routerArgs are flags of a router.
func (f features) routerArgs() []string {
	if f.routes == "" {
		return nil
	}
	return append(f.memberArgs(), "--routes", f.routes)
}

// peerArgs are flags of members that speak TLS among themselves, with a certificate
// whose files are in dir.
func peerArgs(dir string) ([]string, error) {
	ca, err := certs.NewCA(dir, "members")
	if err != nil {
		return nil, err
	}
	cert, key, err := ca.Issue(dir, "member", nil)
	return []string{"--peer-cert", cert, "--peer-key", key, "--peer-ca", ca.File}, err
}
