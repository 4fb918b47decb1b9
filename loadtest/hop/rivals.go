//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/template"

	"github.com/keyway-go/keyway/internal/test/certs"

	"github.com/keyway-go/keyway/loadtest/hop/internal/origin"
	"github.com/keyway-go/keyway/loadtest/internal/load"
	"github.com/keyway-go/keyway/loadtest/internal/proc"
	"github.com/keyway-go/keyway/loadtest/internal/servers"
)

// proxy is a running proxy.
type proxy struct {
	process *proc.Process
	behind  []*proc.Process // other processes whose CPU counts
	addr    map[front]string
	link    *load.Link // as which frontLink speaks to it
}

func (p *proxy) pids() []int {
	all := p.process.Pids()
	for _, b := range p.behind {
		all = append(all, b.Pids()...)
	}
	return all
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

// startNginx starts nginx, which chooses an upstream by the key or in turns.
func (h *hop) startNginx(name string, hash bool, upstreams []string) (*proxy, error) {
	dir, addrs, err := h.fronts(name)
	if err != nil {
		return nil, err
	}
	n := &servers.Nginx{
		Dir: dir, HTTP: addrs[frontHTTP], TLS: addrs[frontTLS], HTTP2: addrs[frontHTTP2], Workers: "1", Connections: maxConnections(), Hash: hash, Upstreams: upstreams,
	}
	if err := n.Write(); err != nil {
		return nil, err
	}
	spec := n.Spec(name)
	spec.CPUs = h.place.proxy
	p, err := h.stage.Start(h.ctx, spec)
	return &proxy{process: p, addr: addrs}, err
}

// writeCertificate makes a certificate of a CA that nobody knows: cert.pem, cert.key.pem, and both.pem for HAProxy.
func (h *hop) writeCertificate(dir string) error {
	ca, err := certs.NewCA(dir, "nobody")
	if err != nil {
		return err
	}
	cert, key, err := ca.Issue(dir, "cert", certs.Loopback)
	if err != nil {
		return err
	}
	both, err := os.ReadFile(cert)
	if err != nil {
		return err
	}
	private, err := os.ReadFile(key)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "both.pem"), append(both, private...), 0o600)
}

// insecure takes such a certificate.
func insecure() *tls.Config { return &tls.Config{InsecureSkipVerify: true} }

// appSocket is where the app of kindApp listens.
func (h *hop) appSocket() string { return filepath.Join(h.dir, "app.sock") }

// startSidecar starts a sidecar of a cluster before the app of kindApp, on the proxies'
// core.
func (h *hop) startSidecar(name, program, cluster, gossip string, args ...string) (*proc.Process, error) {
	args = append(append(args, h.with.memberArgs()...), "--upstream", "unix://"+h.appSocket())
	spec := servers.Worker(name, program, cluster, h.redis, gossip, args...)
	spec.CPUs, spec.Env = h.place.proxy, h.env
	return h.stage.Start(h.ctx, spec)
}

// sidecarProxy starts a sidecar, alone in a cluster, to which the load generator speaks
// as its router does.
func (h *hop) sidecarProxy(program, cluster string) (*proxy, error) {
	p, err := h.startSidecar("worker-"+cluster, program, cluster, "")
	if err != nil {
		return nil, err
	}
	listen, _ := servers.Addrs(p)
	return &proxy{process: p, addr: map[front]string{frontLink: listen}, link: h.with.link(cluster)}, nil
}

// awaitLink waits until requests over the link are answered.
func (h *hop) awaitLink(p *proxy) error {
	ctx, cancel := context.WithTimeout(h.ctx, servers.AnswerPatience)
	defer cancel()
	return load.AwaitLink(ctx, load.Config{Addr: p.addr[frontLink], Link: p.link, Mix: load.Mix{Path: "/1"}}, probedKeys())
}

// netHTTPProxy starts a router of a cluster whose clients net/http serves, on the proxies' core.
func (h *hop) netHTTPProxy(u *upstreams) (*proxy, error) {
	spec, err := h.self("router-nethttp", append([]string{"nethttp", "--cluster", kindLink, "--join", u.router.gossip}, h.with.routerArgs()...)...)
	if err != nil {
		return nil, err
	}
	spec.CPUs, spec.Ready = h.place.proxy, "router ready"
	p, err := h.stage.Start(h.ctx, spec)
	if err != nil {
		return nil, err
	}
	listen, _ := servers.Addrs(p)
	return &proxy{process: p, addr: map[front]string{frontHTTP2: listen}}, nil
}

// runNetHTTP is such a router.
func runNetHTTP(ctx context.Context, args []string, stdout io.Writer) error {
	var cfg origin.RouterConfig
	flags := flag.NewFlagSet("nethttp", flag.ContinueOnError)
	flags.StringVar(&cfg.Cluster, "cluster", "", "name of the cluster")
	flags.StringVar(&cfg.Join, "join", "", "gossip address of a router")
	flags.StringVar(&cfg.GossipKey, "gossip-key", "", "key of gossip, in hex")
	flags.StringVar(&cfg.Routes, "routes", "", "file of routes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return origin.ServeNetHTTP(ctx, cfg, func(listen, gossip string) {
		fmt.Fprintf(stdout, "router ready: requests http://%s, gossip %s\n", listen, gossip)
	})
}
