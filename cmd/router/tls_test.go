package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// certificate writes one for 127.0.0.1 and returns its files and a pool that
// trusts it.
func certificate(t *testing.T) (cert, key string, trusted *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	trusted = x509.NewCertPool()
	trusted.AddCert(parsed)
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", secret), trusted
}

func TestProtocols(t *testing.T) {
	cert, key, trusted := certificate(t)
	plain, secure := start(t), start(t, "--tls-cert", cert, "--tls-key", key)
	show := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Header.Get("X-Forwarded-Proto"))
	})
	join(t, plain, show)
	join(t, secure, show)
	for _, tt := range []struct {
		router    *startRouter
		protocols func(*http.Protocols)
		proto     string
		forwarded string
	}{
		{plain, func(p *http.Protocols) { p.SetHTTP1(true) }, "HTTP/1.1", "http"},
		{plain, func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }, "HTTP/2.0", "http"},
		{secure, func(p *http.Protocols) { p.SetHTTP1(true) }, "HTTP/1.1", "https"},
		{secure, func(p *http.Protocols) { p.SetHTTP2(true) }, "HTTP/2.0", "https"},
	} {
		transport := &http.Transport{Protocols: new(http.Protocols), TLSClientConfig: &tls.Config{RootCAs: trusted}}
		tt.protocols(transport.Protocols)
		req, _ := http.NewRequestWithContext(t.Context(), "GET", tt.router.requests, nil)
		req.Header.Set("X-Key", "k")
		res, err := transport.RoundTrip(req)
		if err != nil {
			t.Errorf("%s over %s: %v", tt.router.requests, tt.proto, err)
			continue
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		transport.CloseIdleConnections()
		if res.StatusCode != 200 || res.Proto != tt.proto || string(body) != tt.forwarded {
			t.Errorf("%s: %d %s %q", tt.router.requests, res.StatusCode, res.Proto, body)
		}
	}
}
