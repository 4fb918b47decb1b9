package gateway_test

import (
	"bytes"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/test/certs"
	"github.com/keyway-go/keyway/internal/test/kit"
)

// What a member loads is what the others would take. What they would not is refused,
// with the name of the file, and what was there stays.
func TestPeerTLSRefusesFiles(t *testing.T) {
	dir := t.TempDir()
	ours, theirs := kit.Must(certs.NewCA(dir, "ours")), kit.Must(certs.NewCA(dir, "theirs"))
	issue := func(ca *certs.CA, name string, change func(*x509.Certificate)) (cert, key string) {
		cert, key, err := ca.Issue(dir, name, change)
		if err != nil {
			t.Fatal(err)
		}
		return cert, key
	}
	cert, key := issue(ours, "member", func(c *x509.Certificate) { c.DNSNames = []string{"member.example"} })
	good := gateway.PeerTLSConfig{CertFile: cert, KeyFile: key, CAFile: ours.File}
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	leaf := func(ca *certs.CA, name string, change func(*x509.Certificate)) func(*gateway.PeerTLSConfig) {
		return func(c *gateway.PeerTLSConfig) { c.CertFile, c.KeyFile = issue(ca, name, change) }
	}
	cas := string(kit.Must(os.ReadFile(ours.File)))
	for name, tc := range map[string]struct {
		change func(*gateway.PeerTLSConfig)
		says   string // "": it is good
	}{
		"all":      {func(*gateway.PeerTLSConfig) {}, ""},
		"the name": {func(c *gateway.PeerTLSConfig) { c.Name = "member.example" }, ""},
		"two CAs": {func(c *gateway.PeerTLSConfig) {
			c.CAFile = file("both", cas+string(kit.Must(os.ReadFile(theirs.File))))
		}, ""},
		"no certificate":       {func(c *gateway.PeerTLSConfig) { c.CertFile = "" }, "CertFile is missing"},
		"no key":               {func(c *gateway.PeerTLSConfig) { c.KeyFile = "" }, "KeyFile is missing"},
		"no CA":                {func(c *gateway.PeerTLSConfig) { c.CAFile = "" }, "CAFile is missing"},
		"no such file":         {func(c *gateway.PeerTLSConfig) { c.CAFile = filepath.Join(dir, "absent") }, "absent: no such file"},
		"another key":          {func(c *gateway.PeerTLSConfig) { _, c.KeyFile = issue(ours, "another", nil) }, "another.key.pem: tls: private key does not match"},
		"an empty CA file":     {func(c *gateway.PeerTLSConfig) { c.CAFile = file("empty", "") }, "empty: there is no certificate"},
		"half a CA":            {func(c *gateway.PeerTLSConfig) { c.CAFile = file("half", cas+cas[:100]) }, "half: the text after the last certificate is broken"},
		"a key among the CAs":  {func(c *gateway.PeerTLSConfig) { c.CAFile = key }, `there is a "PRIVATE KEY"`},
		"a file that is large": {func(c *gateway.PeerTLSConfig) { c.CAFile = file("large", strings.Repeat("\n", 1<<20+1)) }, "large has more than"},
		"another CA":           {leaf(theirs, "stranger", nil), "stranger.pem: the certificate of"},
		"expired":              {leaf(ours, "old", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), "old.pem: the certificate of \"CN=old\" by \"CN=ours\" is not a member's: x509: certificate has expired"},
		"not valid yet":        {leaf(ours, "young", func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) }), "not yet valid"},
		"another name":         {func(c *gateway.PeerTLSConfig) { c.Name = "other.example" }, "not other.example"},
		"a server's only":      {leaf(ours, "server", usage(x509.ExtKeyUsageServerAuth)), "server.pem: the certificate of"},
		"a client's only":      {leaf(ours, "client", usage(x509.ExtKeyUsageClientAuth)), "client.pem: the certificate of"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := good
			tc.change(&cfg)
			loaded, err := gateway.LoadPeerTLS(cfg)
			if (err == nil) != (tc.says == "") || (loaded == nil) != (err != nil) || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v\nwant %q", err, tc.says)
			}
		})
	}

	loaded := kit.Must(gateway.LoadPeerTLS(good))
	before := kit.Must(loaded.ClientConfig().GetClientCertificate(nil))
	text := kit.Must(os.ReadFile(cert))
	file("member.pem", "")
	if err := loaded.Reload(); err == nil || !strings.Contains(err.Error(), "member.pem") {
		t.Error(err)
	}
	if now := kit.Must(loaded.ServerConfig().GetCertificate(nil)); now != before {
		t.Error("bad files have replaced good ones")
	}
	file("member.pem", string(text))
	if err := loaded.Reload(); err != nil {
		t.Error(err)
	}
	now := kit.Must(loaded.ServerConfig().GetCertificate(nil))
	if now == before || !bytes.Equal(now.Certificate[0], before.Certificate[0]) || !loaded.Expires().Equal(now.Leaf.NotAfter) {
		t.Error("good files were not loaded again")
	}
}

func usage(of x509.ExtKeyUsage) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{of} }
}
