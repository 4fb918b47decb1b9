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

	"github.com/keyway-go/keyway/loadtest/internal/proc"
)

// proxy is a running proxy.
type proxy struct {
	process *proc.Process
	addr    map[front]string
}

// front is what a proxy speaks to its clients.
type front string

const (
	frontHTTP  front = "HTTP/1.1"
	frontTLS   front = "HTTP/1.1 over TLS"
	frontHTTP2 front = "HTTP/2"
)

// rivalConfig fills the templates below.
type rivalConfig struct {
	Dir, HTTP, TLS, HTTP2 string
	Upstreams             []string
	Root                  bool   // this user is root
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

// nginxConfig keeps as many idle connections as there can be requests, and
// writes no answer to the disk.
var nginxConfig = template.Must(template.New("nginx.conf").Parse(`
{{if .Root}}user root;
{{end}}daemon off;
worker_processes 1;
pid {{.Dir}}/nginx.pid;
error_log {{.Dir}}/nginx-error.log;
events { worker_connections {{.Connections}}; }
http {
	access_log off;
	keepalive_requests 1000000000;
	keepalive_timeout 5m;
	client_body_temp_path {{.Dir}}/nginx-body;
	proxy_temp_path {{.Dir}}/nginx-proxy;
	fastcgi_temp_path {{.Dir}}/nginx-fastcgi;
	uwsgi_temp_path {{.Dir}}/nginx-uwsgi;
	scgi_temp_path {{.Dir}}/nginx-scgi;
	upstream upstreams {
		hash $http_x_key consistent;
{{range .Upstreams}}		server {{.}};
{{end}}		keepalive 1024;
		keepalive_requests 1000000000;
	}
	proxy_http_version 1.1;
	proxy_set_header Connection "";
	proxy_max_temp_file_size 0;
	proxy_read_timeout 5m;
	server {
		listen {{.HTTP}} backlog=4096;
		listen {{.TLS}} ssl;
		ssl_certificate {{.Dir}}/cert.pem;
		ssl_certificate_key {{.Dir}}/key.pem;
		location / { proxy_pass http://upstreams; }
	}
	server {
		listen {{.HTTP2}} http2;
		location / { proxy_pass http://upstreams; }
	}
}
`))

// configure writes a configuration with free addresses.
func (h *hop) configure(name string, t *template.Template, c *rivalConfig) (path string, err error) {
	c.Dir, c.Root = filepath.Join(h.dir, name), os.Geteuid() == 0
	c.Connections = fileLimit() * 6 / 10 // idle ones need a file each, busy ones two
	if err := os.Mkdir(c.Dir, 0o755); err != nil {
		return "", err
	}
	if err := h.writeCertificate(c.Dir); err != nil {
		return "", err
	}
	for _, addr := range []*string{&c.HTTP, &c.TLS, &c.HTTP2} {
		if *addr, err = proc.FreeAddr(); err != nil {
			return "", err
		}
	}
	var text bytes.Buffer
	if err := t.Execute(&text, c); err != nil {
		return "", err
	}
	path = filepath.Join(c.Dir, t.Name())
	return path, os.WriteFile(path, text.Bytes(), 0o644)
}

func (c *rivalConfig) addrs() map[front]string {
	return map[front]string{frontHTTP: c.HTTP, frontTLS: c.TLS, frontHTTP2: c.HTTP2}
}

func (h *hop) startHAProxy(upstreams []string) (*proxy, error) {
	c := &rivalConfig{Upstreams: upstreams}
	path, err := h.configure("haproxy", haproxyConfig, c)
	if err != nil {
		return nil, err
	}
	p, err := h.stage.Start(h.ctx, proc.Spec{Name: "haproxy", Program: proc.Find("haproxy"), Args: []string{"-db", "-f", path}, CPUs: h.place.proxy, Dial: c.HTTP})
	return &proxy{p, c.addrs()}, err
}

func (h *hop) startNginx(upstreams []string) (*proxy, error) {
	c := &rivalConfig{Upstreams: upstreams}
	path, err := h.configure("nginx", nginxConfig, c)
	if err != nil {
		return nil, err
	}
	p, err := h.stage.Start(h.ctx, proc.Spec{
		Name: "nginx", Program: proc.Find("nginx"), CPUs: h.place.proxy, Dial: c.HTTP,
		Args: []string{"-p", c.Dir, "-e", filepath.Join(c.Dir, "nginx-error.log"), "-c", path},
	})
	return &proxy{p, c.addrs()}, err
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
