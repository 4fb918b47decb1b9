package gateway_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway"
)

// certificate writes one for 127.0.0.1 and returns its files and a pool that
// trusts it.
func certificate(t *testing.T) (cert, key string, trusted *x509.CertPool) {
	t.Helper()
	private := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der := must(x509.CreateCertificate(rand.Reader, template, template, private.Public(), private))
	trusted = x509.NewCertPool()
	trusted.AddCert(must(x509.ParseCertificate(der)))
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(private))), trusted
}

func TestFrontServesTLS(t *testing.T) {
	noLeaks(t)
	rt, _ := throughLink(t, func(rw http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		io.WriteString(rw, strings.Repeat(r.Header.Get("X-Forwarded-Proto"), int(n)))
	})
	server := frontServer()
	server.Protocols.SetHTTP2(true)
	f := gateway.NewFront(rt, server)
	cert, key, trusted := certificate(t)
	if err := f.ServeTLS(must(net.Listen("tcp", "127.0.0.1:0")), key, cert); err == nil {
		t.Error("a key is taken for a certificate")
	}
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	done := make(chan error, 1)
	go func() { done <- f.ServeTLS(l, cert, key) }()
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		transport := &http.Transport{Protocols: new(http.Protocols), TLSClientConfig: &tls.Config{RootCAs: trusted}}
		transport.Protocols.SetHTTP1(proto == "HTTP/1.1")
		transport.Protocols.SetHTTP2(proto == "HTTP/2.0")
		for _, size := range []int{1, 100_000} {
			req := must(http.NewRequestWithContext(t.Context(), "POST", "https://"+l.Addr().String(), strings.NewReader(strings.Repeat("x", size))))
			req.Header.Set("X-Key", "k")
			res, body := do(t, &http.Client{Transport: transport}, req)
			if body != strings.Repeat("https", size) || res.Proto != proto {
				t.Errorf("%s: %d bytes, %.20q", res.Proto, len(body), body)
			}
		}
		transport.CloseIdleConnections()
	}
	// One that does not shake hands holds nothing up.
	silent := must(net.Dial("tcp", l.Addr().String()))
	defer silent.Close()
	conn := must(tls.Dial("tcp", l.Addr().String(), &tls.Config{RootCAs: trusted, NextProtos: []string{"h2"}}))
	defer conn.Close()
	io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+h2Frame(4, 0, 0, ""))
	if _, err := io.ReadFull(conn, make([]byte, 9)); err != nil {
		t.Error(err)
	}
	if err := f.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadAll(conn); err != nil {
		t.Errorf("the idle connection: %v", err)
	}
	if _, err := silent.Read(make([]byte, 1)); err == nil {
		t.Error("the silent connection goes on")
	}
	f.Close()
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}
