package cluster

import (
	"bytes"
	"os"
	"path/filepath"
	"text/template"

	"github.com/keyway-go/keyway/internal/cluster/proc"
)

// Nginx is the configuration of an nginx in front of upstreams.
type Nginx struct {
	Dir         string // of its own, readable for all: its workers are of another user
	HTTP        string // host:port that it listens on
	TLS         string // the same with TLS, with cert.pem and cert.key.pem in Certs; "" for none
	Certs       string // a directory
	HTTP2       string // the same with HTTP/2 without TLS; "" for none
	Workers     int    // processes
	Connections uint64 // at most, of each worker
	Hash        bool   // by the header X-Key, else round robin
	Fresh       bool   // a connection to an upstream for each request, and none is left out because one has failed
	Upstreams   []string
}

// nginxConfig keeps as many idle connections to upstreams as there can be requests, unless each has
// a fresh one. It writes no answer to the disk, and does nothing that a comparison does not need.
var nginxConfig = template.Must(template.New("nginx.conf").Parse(`
{{if .Root}}user root;
{{end}}daemon off;
worker_processes {{.Workers}};
pid {{.Dir}}/nginx.pid;
error_log {{.Dir}}/error.log;
events { worker_connections {{.Connections}}; }
http {
	access_log off;
	keepalive_requests 1000000000;
	keepalive_timeout 5m;
	client_body_temp_path {{.Dir}}/body;
	proxy_temp_path {{.Dir}}/proxy;
	fastcgi_temp_path {{.Dir}}/fastcgi;
	uwsgi_temp_path {{.Dir}}/uwsgi;
	scgi_temp_path {{.Dir}}/scgi;
	upstream upstreams {
		{{if .Hash}}hash $http_x_key consistent;{{end}}
{{range .Upstreams}}		server {{.}}{{if $.Fresh}} max_fails=0{{end}};
{{end}}		{{if not .Fresh}}keepalive 1024;
		keepalive_requests 1000000000;{{end}}
	}
	{{if not .Fresh}}proxy_http_version 1.1;
	proxy_set_header Connection "";{{end}}
	proxy_set_header Host $http_host;
	proxy_max_temp_file_size 0;
	proxy_read_timeout 5m;
	server {
		listen {{.HTTP}} backlog=4096;
		{{if .TLS}}listen {{.TLS}} ssl;
		ssl_certificate {{.Certs}}/cert.pem;
		ssl_certificate_key {{.Certs}}/cert.key.pem;{{end}}
		location / { proxy_pass http://upstreams; }
	}
	{{if .HTTP2}}server {
		listen {{.HTTP2}} http2;
		location / { proxy_pass http://upstreams; }
	}{{end}}
}
`))

func (n *Nginx) path() string { return filepath.Join(n.Dir, "nginx.conf") }

// Root reports whether this process is root's.
func (n *Nginx) Root() bool { return os.Geteuid() == 0 }

// Write writes the configuration, which a running nginx takes at SIGHUP.
func (n *Nginx) Write() error {
	var text bytes.Buffer
	if err := nginxConfig.Execute(&text, n); err != nil {
		return err
	}
	return os.WriteFile(n.path(), text.Bytes(), 0o644)
}

// Spec describes the process.
func (n *Nginx) Spec(name string) proc.Spec {
	return proc.Spec{
		Name: name, Program: proc.Find("nginx"), Dial: n.HTTP,
		Args: []string{"-p", n.Dir, "-e", filepath.Join(n.Dir, "error.log"), "-c", n.path()},
	}
}
