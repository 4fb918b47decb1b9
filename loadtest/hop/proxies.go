//go:build linux

package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/internal/test/certs"
	"github.com/keyway-go/keyway/loadtest/internal/load"
	"github.com/keyway-go/keyway/loadtest/internal/proc"
	"github.com/keyway-go/keyway/loadtest/internal/servers"
	"github.com/keyway-go/keyway/ring"
)

// proxy is a running proxy.
type proxy struct {
	process *proc.Process
	behind  []*proc.Process // other processes whose CPU counts
	addr    map[front]string
	client  *keyway.Client // of a sidecar: calls it in place of connections to addr
}

func (p *proxy) pids() []int {
	all := proc.Pids(p.process)
	for _, b := range p.behind {
		all = append(all, proc.Pids(b)...)
	}
	return all
}

func (p *proxy) cpu() (sum time.Duration) {
	for _, pid := range p.pids() {
		sum += proc.CPUTime(pid)
	}
	return sum
}

// front is what a proxy speaks to its clients.
type front string

const (
	frontHTTP  front = "HTTP/1.1"
	frontTLS   front = "HTTP/1.1 over TLS"
	frontHTTP2 front = "HTTP/2"
)

// starter starts a contestant that speaks a front, before upstreams.
type starter func(u *upstreams, f front) (*proxy, error)

// contestant returns the kind of upstreams that a contestant has behind it, and what starts it.
func (h *hop) contestant(name string) (kind string, start starter) {
	switch name {
	case haproxy:
		return kindHTTP, func(u *upstreams, _ front) (*proxy, error) { return h.startHAProxy("haproxy", u.addrs) }
	case haproxyApp:
		return kindApp, func(*upstreams, front) (*proxy, error) {
			return h.startHAProxy("haproxy-app", []string{"unix@" + h.appSocket()})
		}
	case nginx:
		return kindHTTP, func(u *upstreams, _ front) (*proxy, error) { return h.startNginx("nginx", true, u.addrs) }
	case sidecar:
		return kindApp, func(*upstreams, front) (*proxy, error) { return h.sidecarProxy(h.programs.Worker, "sidecar") }
	case sidecarOther:
		return kindApp, func(*upstreams, front) (*proxy, error) { return h.sidecarProxy(h.otherWorker, "sidecar-other") }
	case doorsAny, doorsOwner, doorsRouter:
		return kindApp, func(*upstreams, front) (*proxy, error) { return h.doorsProxy(name) }
	case keywayOther:
		return kindLink, func(u *upstreams, f front) (*proxy, error) { return h.anotherRouter(name, h.other, u, f) }
	}
	kind = map[string]string{keywayRouter: kindLink, keywayHandler: kindHandler, keywayPlain: kindPlain, keywaySecure: kindSecure}[name]
	return kind, func(u *upstreams, f front) (*proxy, error) {
		if f == frontTLS { // a router listens once
			return h.anotherRouter(name, h.programs.Router, u, f)
		}
		return routerProxy(u.router, f), nil
	}
}

// proxy starts a contestant that speaks f, if it does not run yet.
func (h *hop) proxy(name string, f front) (*proxy, error) {
	f = cmp.Or(f, frontHTTP)
	for _, p := range h.running[name] {
		if p.addr[f] != "" || p.client != nil {
			return p, nil
		}
	}
	kind, start := h.contestant(name)
	u, err := h.upstreams(kind)
	if err != nil {
		return nil, err
	}
	p, err := start(u, f)
	if err != nil {
		return nil, err
	}
	h.running[name] = append(h.running[name], p)
	return p, h.await(f, p)
}

// await waits until requests are answered.
func (h *hop) await(f front, p *proxy) error {
	return load.Await(h.ctx, h.config(scenario{front: f, path: "/1"}, p))
}

// upstreams are running upstreams of one kind, or workers.
type upstreams struct {
	process *proc.Process
	addrs   []string
	router  *cluster.Process // nil without a cluster
}

// upstreams starts upstreams of a kind, if they do not run yet, with their
// first router.
func (h *hop) upstreams(kind string) (*upstreams, error) {
	if u := h.origins[kind]; u != nil {
		return u, nil
	}
	u := new(upstreams)
	cfg := childConfig{Kind: kind, Socket: h.appSocket()}
	if kind != kindHTTP && kind != kindApp {
		var peers []string
		if kind == kindSecure {
			var err error
			if cfg.Peers, peers, err = peerTLS(h.stage.Dir); err != nil {
				return nil, err
			}
		}
		var err error
		if u.router, err = h.startRouter("router-"+kind, h.programs.Router, kind, peers...); err != nil {
			return nil, err
		}
		cfg.Cluster, cfg.Join, cfg.Redis, cfg.GossipKey = kind, u.router.Gossip, h.redis, h.with.keyring
	}
	spec, err := proc.Self("upstreams-"+kind, "upstreams", cfg)
	if err != nil {
		return nil, err
	}
	// Go collects garbage less often than it does by default with so small a heap: HAProxy and nginx make none,
	// and they share a core with the load generator, whose latencies it would disturb.
	spec.Env = append(spec.Env, upstreamsEnv)
	spec.Ready = "ready "
	if u.process, err = h.stage.Start(h.ctx, spec); err != nil {
		return nil, err
	}
	_, rest, _ := strings.Cut(u.process.ReadyLine(), "ready ")
	u.addrs = strings.Fields(rest)
	h.origins[kind] = u
	return u, nil
}

const upstreamsEnv = "GOGC=400"

// haproxyValues fill the template below.
type haproxyValues struct {
	Certs, HTTP, TLS, HTTP2 string
	Upstreams               []string
	Connections             uint64 // at most
}

// haproxyConfig is HAProxy on one thread, at its best for this task: it
// shares all connections to upstreams, and uses any that is free.
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
	bind {{.TLS}} ssl crt {{.Certs}}/both.pem alpn http/1.1
	default_backend upstreams
frontend http2
	bind {{.HTTP2}} proto h2
	default_backend upstreams
backend upstreams
	balance hdr(X-Key)
	hash-type consistent
{{range $i, $u := .Upstreams}}	server u{{$i}} {{$u}}
{{end}}`))

// fronts makes a directory, and finds an address for each way to speak to clients.
func (h *hop) fronts(name string) (dir string, addrs map[front]string, err error) {
	dir = filepath.Join(h.stage.Dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", nil, err
	}
	addrs = make(map[front]string)
	for _, f := range []front{frontHTTP, frontTLS, frontHTTP2} {
		if addrs[f], err = proc.FreeAddr(); err != nil {
			return "", nil, err
		}
	}
	return dir, addrs, nil
}

func (h *hop) startHAProxy(name string, upstreams []string) (*proxy, error) {
	dir, addrs, err := h.fronts(name)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	values := haproxyValues{Certs: h.stage.Dir, HTTP: addrs[frontHTTP], TLS: addrs[frontTLS], HTTP2: addrs[frontHTTP2], Upstreams: upstreams, Connections: h.maxConnections}
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
	n := &cluster.Nginx{
		Dir: dir, Certs: h.stage.Dir, HTTP: addrs[frontHTTP], TLS: addrs[frontTLS], HTTP2: addrs[frontHTTP2], Workers: 1, Connections: h.maxConnections, Hash: hash, Upstreams: upstreams,
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
func writeCertificate(dir string) error {
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

// startMember starts a router or a sidecar.
func (h *hop) startMember(spec proc.Spec) (*cluster.Process, error) {
	spec.CPUs = h.place.proxy
	p, err := h.stage.Start(h.ctx, spec)
	if err != nil {
		return nil, err
	}
	return cluster.Of(p), nil
}

// startRouter starts the first router of a cluster, or another one. It takes as many connections as its rivals.
func (h *hop) startRouter(name, program, clusterName string, args ...string) (*cluster.Process, error) {
	args = append([]string{"--max-connections", fmt.Sprint(h.maxConnections)}, args...)
	return h.startMember(servers.Router(name, program, clusterName, h.redis, slices.Concat(args, h.with.member, h.with.routes)...))
}

// anotherRouter starts one more router of a cluster.
func (h *hop) anotherRouter(name, program string, u *upstreams, f front) (*proxy, error) {
	args := []string{"--join", u.router.Gossip}
	if f == frontTLS {
		args = append(args, h.tlsArgs()...)
	}
	kind, _ := h.contestant(name)
	r, err := h.startRouter(fileName("router-"+name+"-"+string(f)), program, kind, args...)
	if err != nil {
		return nil, err
	}
	return routerProxy(r, f), nil
}

// routerProxy is a router with or without TLS.
func routerProxy(r *cluster.Process, f front) *proxy {
	addr := map[front]string{frontHTTP: r.Listen, frontHTTP2: r.Listen}
	if f == frontTLS {
		addr = map[front]string{frontTLS: r.Listen}
	}
	return &proxy{process: r.Process, addr: addr}
}

// fileName is a name without what shells and paths take for something else.
func fileName(name string) string {
	return strings.NewReplacer(" ", "-", ",", "", "'", "", "/", "").Replace(name)
}

// tlsArgs are flags of a router that takes TLS.
func (h *hop) tlsArgs() []string {
	return []string{"--tls-cert", filepath.Join(h.stage.Dir, "cert.pem"), "--tls-key", filepath.Join(h.stage.Dir, "cert.key.pem")}
}

// appSocket is where the app of kindApp listens.
func (h *hop) appSocket() string { return filepath.Join(h.stage.Dir, "app.sock") }

// startSidecar starts a sidecar of a cluster before the app of kindApp.
func (h *hop) startSidecar(name, program, clusterName, gossip string, args ...string) (*cluster.Process, error) {
	args = slices.Concat(args, h.with.member, []string{"--upstream", "unix://" + h.appSocket()})
	return h.startMember(servers.Worker(name, program, clusterName, h.redis, gossip, args...))
}

// sidecarProxy starts a sidecar, alone in a cluster. The load generator speaks to it over the link, as
// a client of the library.
func (h *hop) sidecarProxy(program, name string) (*proxy, error) {
	s, err := h.startSidecar("worker-"+name, program, name, "")
	if err != nil {
		return nil, err
	}
	client, err := keyway.NewClient(h.ctx, keyway.ClientConfig{
		Join: []string{s.Gossip}, GossipKeys: h.with.keyring, Settings: ring.Settings{Cluster: name}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	h.clients = append(h.clients, client)
	return &proxy{process: s.Process, client: client}, nil
}

// call sends a request by a client, and returns how long the answer's body was.
func call(ctx context.Context, client *keyway.Client, path, key string) (int64, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	if err != nil {
		return 0, err
	}
	r.Host, r.Header = "bench.example", http.Header{gateway.HeaderKey: {key}, load.HeaderKey: {key}}
	res, err := client.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	length, err := io.Copy(io.Discard, res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", res.StatusCode)
	}
	return length, err
}

// doorsOf returns the sidecars of a cluster that take requests from clients. They are started once. With
// the name "" each is alone in a cluster of its own, and so owns all keys.
func (h *hop) doorsOf(clusterName string) (all []*cluster.Process, err error) {
	if all := h.doors[clusterName]; all != nil {
		return all, nil
	}
	args := append([]string{"--public", "127.0.0.1:0"}, h.with.routes...)
	for i := range instances {
		name, join := fmt.Sprintf("door-%s%d", clusterName, i+1), ""
		if clusterName != "" && i > 0 {
			join = all[0].Gossip
		}
		d, err := h.startSidecar(name, h.programs.Worker, cmp.Or(clusterName, name), join, args...)
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	h.doors[clusterName] = all
	return all, nil
}

// doorsProxy starts what stands before doors, or before a router of their cluster.
func (h *hop) doorsProxy(name string) (p *proxy, err error) {
	clusterName := "doors"
	if name == doorsOwner {
		clusterName = ""
	}
	doors, err := h.doorsOf(clusterName)
	if err != nil {
		return nil, err
	}
	before, behind := doors, doors
	if name == doorsRouter {
		before = nil
		for i := range 2 { // as many as in deploy/
			r, err := h.startRouter(fmt.Sprint("router-doors", i+1), h.programs.Router, clusterName, "--join", doors[0].Gossip)
			if err != nil {
				return nil, err
			}
			before = append(before, r)
		}
		behind = append(before, doors...)
	}
	var upstreams []string
	for _, m := range before {
		upstreams = append(upstreams, m.Listen)
	}
	if p, err = h.startNginx(fileName(name), false, upstreams); err == nil {
		for _, m := range behind {
			p.behind = append(p.behind, m.Process)
		}
	}
	return p, err
}
