//go:build linux

package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"text/template"
	"time"

	"github.com/keyway-go/keyway/loadtest/internal/load"
	"github.com/keyway-go/keyway/loadtest/internal/proc"
	"github.com/keyway-go/keyway/loadtest/internal/servers"
)

// proxy is a running proxy.
type proxy struct {
	process *proc.Process
	addr    map[front]string
	link    *load.Link // as which frontLink speaks to it
}

// front is what a proxy speaks to its clients.
type front string

const (
	frontHTTP  front = "HTTP/1.1"
	frontTLS   front = "HTTP/1.1 over TLS"
	frontHTTP2 front = "HTTP/2"
	frontLink  front = "link" // of a sidecar, whose clients are routers
)

// haproxyValues fill the template below.
type haproxyValues struct {
	Dir, HTTP, TLS, HTTP2 string
	Upstreams             []string
	Connections           uint64 // at most
}

// haproxyConfig is HAProxy on one thread, with what it has for this task: it
// shares all connections to upstreams, and answers from whichever is free.
var haproxyConfig = template.Must(template.New("haproxy.cfg").Parse(`
global
	nbthread 1
	maxconn {{.Connections}}
	no strict-limits
defaults
	mode http
	timeout connect 5s
	timeout client 5m
	timeout server 5m
	http-reuse always
frontend http
	bind {{.HTTP}}
	default_backend upstreams
frontend tls
	bind {{.TLS}} ssl crt {{.Dir}}/both.pem alpn http/1.1
	default_backend upstreams
frontend http2
	bind {{.HTTP2}} proto h2
	default_backend upstreams
backend upstreams
	balance hdr(X-Key)
	hash-type consistent
{{range $i, $u := .Upstreams}}	server u{{$i}} {{$u}}
{{end}}`))

// fronts makes a directory with a certificate, and finds an address for each way
// to speak to clients.
func (h *hop) fronts(name string) (dir string, addrs map[front]string, err error) {
	dir = filepath.Join(h.dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", nil, err
	}
	addrs = make(map[front]string)
	for _, f := range []front{frontHTTP, frontTLS, frontHTTP2} {
		if addrs[f], err = proc.FreeAddr(); err != nil {
			return "", nil, err
		}
	}
	return dir, addrs, h.writeCertificate(dir)
}

// maxConnections is what a proxy's files suffice for: an idle connection needs
// one, a busy one two.
func maxConnections() uint64 { return proc.FileLimit() * 6 / 10 }

func (h *hop) startHAProxy(name string, upstreams []string) (*proxy, error) {
	dir, addrs, err := h.fronts(name)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	values := haproxyValues{Dir: dir, HTTP: addrs[frontHTTP], TLS: addrs[frontTLS], HTTP2: addrs[frontHTTP2], Upstreams: upstreams, Connections: maxConnections()}
	if err := haproxyConfig.Execute(&text, values); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "haproxy.cfg")
	if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
		return nil, err
	}
	p, err := h.stage.Start(h.ctx, proc.Spec{Name: name, Program: proc.Find("haproxy"), Args: []string{"-db", "-f", path}, CPUs: h.place.proxy, Dial: values.HTTP})
	return &proxy{process: p, addr: addrs}, err
}

func (h *hop) startNginx(upstreams []string) (*proxy, error) {
	dir, addrs, err := h.fronts("nginx")
	if err != nil {
		return nil, err
	}
	n := &servers.Nginx{
		Dir: dir, HTTP: addrs[frontHTTP], TLS: addrs[frontTLS], HTTP2: addrs[frontHTTP2], Workers: "1", Connections: maxConnections(), Hash: true, Upstreams: upstreams,
	}
	if err := n.Write(); err != nil {
		return nil, err
	}
	spec := n.Spec("nginx")
	spec.CPUs = h.place.proxy
	p, err := h.stage.Start(h.ctx, spec)
	return &proxy{process: p, addr: addrs}, err
}

// writeCertificate makes a certificate that nobody has signed.
func (h *hop) writeCertificate(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"bench.example"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	for name, content := range map[string][]byte{"cert.pem": certPEM, "key.pem": keyPEM, "both.pem": append(certPEM, keyPEM...)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return fmt.Errorf("writing the certificate: %w", err)
		}
	}
	return nil
}

// insecure takes such a certificate.
func insecure() *tls.Config { return &tls.Config{InsecureSkipVerify: true} }
