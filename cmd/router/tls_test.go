package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"github.com/keyway-go/keyway/internal/test/certs"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/internal/test/kit"
)

func TestProtocols(t *testing.T) {
	cert, key, trusted := kit.Certificate(t)
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

// The certificate for clients changes with its files; bad ones change nothing.
func TestCertificateIsReadAgain(t *testing.T) {
	cert, key, _ := kit.Certificate(t)
	r := start(t, "--tls-cert", cert, "--tls-key", key)
	shown := func() string {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(r.requests, "https://"), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return string(conn.ConnectionState().PeerCertificates[0].Raw)
	}
	replace := func(file string, text []byte) {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	first := shown()
	replace(cert, []byte("none"))
	kit.Eventually(t, "the bad file is logged", func() bool { return strings.Contains(r.stderr.String(), "the certificate cannot be reloaded") })
	if shown() != first {
		t.Error("a bad file has replaced a good one")
	}
	nextCert, nextKey, _ := kit.Certificate(t)
	replace(key, kit.Must(os.ReadFile(nextKey)))
	replace(cert, kit.Must(os.ReadFile(nextCert)))
	kit.Eventually(t, "the new one is shown", func() bool { return shown() != first })
	if text := r.stderr.String(); !strings.Contains(text, "expires within a day") {
		t.Errorf("no warning of a certificate that ends soon: %s", text)
	}
}

// With a folder of certificates the client's name for the server chooses, also among those that come
// later.
func TestCertificatesOfAFolder(t *testing.T) {
	dir := t.TempDir()
	ca := kit.Must(certs.NewCA(t.TempDir(), "ca"))
	add := func(host string) {
		cert, key, err := ca.Issue(t.TempDir(), host, func(c *x509.Certificate) { c.DNSNames = []string{host} })
		if err = errors.Join(err, os.Rename(key, filepath.Join(dir, host+".key")), os.Rename(cert, filepath.Join(dir, host+".crt"))); err != nil {
			t.Fatal(err)
		}
	}
	add("a.example")
	add("b.example")
	r := start(t, "--tls-cert", dir)
	shown := func(host string) string {
		conn := kit.Must(tls.Dial("tcp", strings.TrimPrefix(r.requests, "https://"), &tls.Config{ServerName: host, InsecureSkipVerify: true}))
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].DNSNames[0]
	}
	for host, want := range map[string]string{"a.example": "a.example", "b.example": "b.example", "c.example": "a.example", "": "a.example"} {
		if got := shown(host); got != want {
			t.Errorf("the certificate for %q is that of %s", host, got)
		}
	}
	add("c.example")
	kit.Eventually(t, "the new one is shown", func() bool { return shown("c.example") == "c.example" })
}
