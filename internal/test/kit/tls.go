package kit

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/test/certs"
)

// Certificate writes one for 127.0.0.1 that ends in an hour, and returns its files and a pool that
// trusts it.
func Certificate(t testing.TB) (cert, key string, trusted *x509.CertPool) {
	t.Helper()
	dir := t.TempDir()
	ca := Must(certs.NewCA(dir, "ca"))
	cert, key, err := ca.Issue(dir, "cert", func(c *x509.Certificate) {
		certs.Loopback(c)
		c.NotAfter = time.Now().Add(time.Hour)
	})
	if err != nil {
		t.Fatal(err)
	}
	return cert, key, ca.Pool()
}

// PeerTLSFiles is TLS between members by files that change.
type PeerTLSFiles struct {
	*gateway.PeerTLS
	dir string
}

// NewPeerTLSFiles returns TLS by a certificate of a CA.
func NewPeerTLSFiles(t testing.TB, ca *certs.CA) *PeerTLSFiles {
	t.Helper()
	f := &PeerTLSFiles{dir: t.TempDir()}
	f.write(t, ca, ca)
	at := func(name string) string { return filepath.Join(f.dir, name) }
	f.PeerTLS = Must(gateway.LoadPeerTLS(gateway.PeerTLSConfig{CertFile: at("cert"), KeyFile: at("key"), CAFile: at("ca")}))
	return f
}

// Use changes to a certificate of the first CA, and to taking those of all, and reads the
// files again.
func (f *PeerTLSFiles) Use(t testing.TB, cas ...*certs.CA) {
	t.Helper()
	f.write(t, cas[0], cas...)
	if err := f.Reload(); err != nil {
		t.Fatal(err)
	}
}

func (f *PeerTLSFiles) write(t testing.TB, own *certs.CA, cas ...*certs.CA) {
	t.Helper()
	cert, key, err := own.Issue(f.dir, "member", nil)
	if err != nil {
		t.Fatal(err)
	}
	files := make([]string, len(cas))
	for i, ca := range cas {
		files[i] = ca.File
	}
	for to, from := range map[string]string{"cert": cert, "key": key, "ca": Join(t, files...)} {
		if err := os.WriteFile(filepath.Join(f.dir, to), Must(os.ReadFile(from)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// PeerTLS returns TLS between members by a certificate of a CA, to which change is
// applied unless it is nil.
func PeerTLS(t testing.TB, ca *certs.CA, change func(*x509.Certificate)) *gateway.PeerTLS {
	t.Helper()
	cert, key, err := ca.Issue(t.TempDir(), "member", change)
	if err != nil {
		t.Fatal(err)
	}
	return Must(gateway.LoadPeerTLS(gateway.PeerTLSConfig{CertFile: cert, KeyFile: key, CAFile: ca.File}))
}

// Join writes a file with the content of others, one behind the other, and returns it.
func Join(t testing.TB, names ...string) string {
	t.Helper()
	var all []byte
	for _, name := range names {
		all = append(all, Must(os.ReadFile(name))...)
	}
	path := filepath.Join(t.TempDir(), "joined.pem")
	if err := os.WriteFile(path, all, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
