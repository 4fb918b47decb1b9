package kit

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certificate writes one for 127.0.0.1 and returns its files and a pool that
// trusts it.
func Certificate(t *testing.T) (cert, key string, trusted *x509.CertPool) {
	t.Helper()
	private := Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der := Must(x509.CreateCertificate(rand.Reader, template, template, private.Public(), private))
	trusted = x509.NewCertPool()
	trusted.AddCert(Must(x509.ParseCertificate(der)))
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", Must(x509.MarshalPKCS8PrivateKey(private))), trusted
}
