package gateway

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// PeerTLSConfig says by what members of a cluster know each other under TLS. All
// fields but Name are required.
type PeerTLSConfig struct {
	// CertFile has this member's certificate in PEM, with those between it and the
	// CA's behind it if there are any, and KeyFile its private key. It must be good for
	// both ends of a connection (server and client authentication).
	CertFile, KeyFile string

	// CAFile has the certificates in PEM of the CAs whose certificates are members'.
	// While one CA takes the place of another it has both.
	CAFile string

	// Name is a DNS name that the certificate of each member must have. Default: any
	// certificate of these CAs is a member's, so they must be the cluster's own.
	Name string

	// Optional makes this member use TLS with members that do, and no TLS with the others, while a
	// cluster changes to TLS or from it.
	Optional bool
}

// PeerTLS is TLS between members: each shows a certificate, and takes those of its CAs.
// Make one with [LoadPeerTLS]. It may be used by several routers, clients and workers
// at a time.
//
// The address of a member plays no part: gossip says where members are, and a certificate says that
// a process is a member, not which one.
type PeerTLS struct {
	cfg      PeerTLSConfig
	material atomic.Pointer[peerMaterial]

	mu       sync.Mutex // guards changes of material, and what follows
	onReload map[*func()]struct{}
}

// peerMaterial is what the files of a PeerTLS hold. It does not change.
type peerMaterial struct {
	own *tls.Certificate
	cas *x509.CertPool
}

// maxPEM bounds each of the files.
const maxPEM = 1 << 20

// LoadPeerTLS reads the files. Its error names the bad file and says why, also if other members
// would refuse this member's certificate by the CAs.
func LoadPeerTLS(cfg PeerTLSConfig) (*PeerTLS, error) {
	for _, file := range []struct{ field, name string }{{"CertFile", cfg.CertFile}, {"KeyFile", cfg.KeyFile}, {"CAFile", cfg.CAFile}} {
		if file.name == "" {
			return nil, fmt.Errorf("gateway: PeerTLSConfig.%s is missing", file.field)
		}
	}
	t := &PeerTLS{cfg: cfg}
	if err := t.Reload(); err != nil {
		return nil, err
	}
	return t, nil
}

// Reload reads the files again. New connections use the new certificates; existing ones end with
// the requests that they carry. If there is an error, as from LoadPeerTLS, nothing changes.
func (t *PeerTLS) Reload() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	m, err := t.cfg.load(time.Now())
	if err != nil {
		return fmt.Errorf("gateway: TLS between members: %w", err)
	}
	t.material.Store(m)
	for f := range t.onReload {
		(*f)()
	}
	return nil
}

// OnReload makes each successful Reload call f, until stop is called. f may call only the methods
// of t that return configurations.
func (t *PeerTLS) OnReload(f func()) (stop func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.onReload == nil {
		t.onReload = make(map[*func()]struct{})
	}
	t.onReload[&f] = struct{}{}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.onReload, &f)
	}
}

// Optional reports whether members that speak no TLS are members too.
func (t *PeerTLS) Optional() bool { return t.cfg.Optional }

// Expires returns when this member's certificate ends. Other members refuse it from then on.
func (t *PeerTLS) Expires() time.Time { return t.material.Load().own.Leaf.NotAfter }

// ClientConfig returns the configuration of a member that connects to another one.
func (t *PeerTLS) ClientConfig() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, // of the address; VerifyConnection verifies the rest
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return t.material.Load().own, nil
		},
		VerifyConnection: func(cs tls.ConnectionState) error {
			return t.verify(cs.PeerCertificates, x509.ExtKeyUsageServerAuth)
		},
		DynamicRecordSizingDisabled: true,
	}
}

// ServerConfig returns the configuration of a member that only accepts connections.
func (t *PeerTLS) ServerConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		ClientAuth: tls.RequireAnyClientCert, // VerifyConnection verifies it
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return t.material.Load().own, nil
		},
		VerifyConnection: func(cs tls.ConnectionState) error {
			return t.verify(cs.PeerCertificates, x509.ExtKeyUsageClientAuth)
		},
		SessionTicketsDisabled:      true, // each connection shows its certificate
		DynamicRecordSizingDisabled: true,
	}
}

// verify reports whether a chain is that of a member.
func (t *PeerTLS) verify(chain []*x509.Certificate, usage x509.ExtKeyUsage) error {
	return t.cfg.verify(t.material.Load().cas, chain, usage, time.Now())
}

func (c *PeerTLSConfig) verify(cas *x509.CertPool, chain []*x509.Certificate, usage x509.ExtKeyUsage, now time.Time) error {
	between := x509.NewCertPool()
	for _, cert := range chain[1:] {
		between.AddCert(cert)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: cas, Intermediates: between, DNSName: c.Name, KeyUsages: []x509.ExtKeyUsage{usage}, CurrentTime: now,
	})
	if err != nil {
		return fmt.Errorf("the certificate of %q by %q is not a member's: %w", chain[0].Subject, chain[0].Issuer, err)
	}
	return nil
}

func (c *PeerTLSConfig) load(now time.Time) (*peerMaterial, error) {
	cert, failed := readPEM(c.CertFile)
	key, err := readPEM(c.KeyFile)
	failed = cmp.Or(failed, err)
	cas, err := readPEM(c.CAFile)
	if failed = cmp.Or(failed, err); failed != nil {
		return nil, failed
	}
	m := new(peerMaterial)
	own, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", c.CertFile, c.KeyFile, err)
	}
	m.own = &own
	if m.cas, err = parseCAs(cas); err != nil {
		return nil, fmt.Errorf("%s: %w", c.CAFile, err)
	}
	var chain []*x509.Certificate
	for _, der := range own.Certificate {
		parsed, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.CertFile, err)
		}
		chain = append(chain, parsed)
	}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if err := c.verify(m.cas, chain, usage, now); err != nil {
			return nil, fmt.Errorf("%s: %w", c.CertFile, err)
		}
	}
	return m, nil
}

func readPEM(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPEM+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxPEM:
		return nil, fmt.Errorf("%s has more than %d bytes", name, maxPEM)
	}
	return text, nil
}

// parseCAs returns the certificates in a text; it must have at least one.
func parseCAs(text []byte) (*x509.CertPool, error) {
	cas, found := x509.NewCertPool(), false
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("there is a %q, want certificates only", block.Type)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		cas.AddCert(cert)
		found = true
	}
	switch {
	case !found:
		return nil, errors.New("there is no certificate in PEM")
	case bytes.Contains(text, []byte("-----BEGIN")):
		return nil, errors.New("the text after the last certificate is broken")
	}
	return cas, nil
}
