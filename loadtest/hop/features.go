//go:build linux

package main

import (
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"os"
	"path/filepath"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/test/certs"
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
}

// allFeatures returns everything that costs something for each request or connection:
// routes with limits and rates, which nothing exceeds, and proofs by a gossip key.
func allFeatures(dir string) (features, error) {
	file, key := filepath.Join(dir, "routes.yaml"), make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return features{
		member: []string{"--gossip-key", hex.EncodeToString(key)}, routes: []string{"--routes", file}, keyring: [][]byte{key},
	}, os.WriteFile(file, routesFile, 0o600)
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
