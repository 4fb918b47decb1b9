//go:build linux

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"text/template"

	"github.com/keyway-go/keyway/loadtest/internal/proc"
)

// balancer is a running nginx.
type balancer struct {
	dir       string
	listen    string
	hash      bool // by key, else round robin
	upstreams []string
	process   *proc.Process
}

// nginxConfig keeps idle connections to upstreams, as many as there can be
// requests, and does nothing that a comparison of locks does not need.
var nginxConfig = template.Must(template.New("nginx.conf").Parse(`
{{if .Root}}user root;
{{end}}daemon off;
worker_processes auto;
pid {{.Dir}}/nginx.pid;
error_log {{.Dir}}/error.log;
events { worker_connections 8192; }
http {
	access_log off;
	keepalive_requests 1000000000;
	keepalive_timeout 5m;
	client_body_temp_path {{.Dir}}/body;
	proxy_temp_path {{.Dir}}/proxy;
	fastcgi_temp_path {{.Dir}}/fastcgi;
	uwsgi_temp_path {{.Dir}}/uwsgi;
	scgi_temp_path {{.Dir}}/scgi;
	upstream app {
		{{if .Hash}}hash $http_x_key consistent;{{end}}
{{range .Upstreams}}		server {{.}};
{{end}}		keepalive 1024;
		keepalive_requests 1000000000;
	}
	proxy_http_version 1.1;
	proxy_set_header Connection "";
	proxy_max_temp_file_size 0;
	proxy_read_timeout 5m;
	server {
		listen {{.Listen}} backlog=4096;
		location / { proxy_pass http://app; }
	}
}
`))

func (b *balancer) configure() error {
	var text bytes.Buffer
	err := nginxConfig.Execute(&text, map[string]any{
		"Root": os.Geteuid() == 0, "Dir": b.dir, "Hash": b.hash, "Upstreams": b.upstreams, "Listen": b.listen,
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.dir, "nginx.conf"), text.Bytes(), 0o644)
}

// startBalancer starts nginx in front of the upstreams.
func (s *stack) startBalancer(upstreams []string) (err error) {
	b := &balancer{dir: filepath.Join(s.dir, "nginx-"+s.name), hash: s.front == frontHash, upstreams: upstreams}
	if b.listen, err = proc.FreeAddr(); err != nil {
		return err
	}
	if err := os.Mkdir(b.dir, 0o755); err != nil {
		return err
	}
	if err := b.configure(); err != nil {
		return err
	}
	b.process, err = s.start(groupFront, proc.Spec{
		Name: "nginx-" + s.name, Program: proc.Find("nginx"), Dial: b.listen,
		Args: []string{"-p", b.dir, "-e", filepath.Join(b.dir, "error.log"), "-c", filepath.Join(b.dir, "nginx.conf")},
	})
	s.balancer, s.addr = b, b.listen
	return err
}

// reload makes nginx take other upstreams.
func (b *balancer) reload(upstreams []string) error {
	b.upstreams = upstreams
	if err := b.configure(); err != nil {
		return err
	}
	return b.process.Signal(syscall.SIGHUP)
}
