package conformance

import (
	"crypto/x509"
	"net"
	"testing"

	"github.com/keyway-go/keyway/internal/test/certs"
)

// certificate returns the files of a certificate for 127.0.0.1, of its key, and of the CA that has issued it.
func certificate(t *testing.T) (cert, key, ca string) {
	t.Helper()
	dir := t.TempDir()
	authority, err := certs.NewCA(dir, "conformance")
	if err == nil {
		cert, key, err = authority.Issue(dir, "router", func(c *x509.Certificate) {
			c.IPAddresses, c.DNSNames = []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"localhost"}
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return cert, key, authority.File
}
