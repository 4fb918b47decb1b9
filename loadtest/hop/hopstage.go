//go:build linux

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/keyway-go/keyway/loadtest/internal/load"
	"github.com/keyway-go/keyway/loadtest/internal/proc"
	"github.com/keyway-go/keyway/loadtest/internal/servers"
)

// upstreams are running upstreams of one kind, or workers.
type upstreams struct {
	process *proc.Process
	addrs   []string
	router  *router // nil without a cluster
}

// kindOf returns the kind of upstreams that a contestant has behind it.
func kindOf(name string) string {
	switch name {
	case keyway, keywayOther, keywayNetHTTP:
		return kindLink
	case keywayHandler:
		return kindHandler
	case keywayPlain:
		return kindPlain
	case keywaySecure:
		return kindSecure
	case haproxyApp, sidecar, sidecarOther, doorsAny, doorsOwner, doorsRouter, doorAlone:
		return kindApp
	}
	return kindHTTP
}

// upstreams starts upstreams of a kind, if they do not run yet, with their
// first router.
func (h *hop) upstreams(kind string) (*upstreams, error) {
	if u := h.origins[kind]; u != nil {
		return u, nil
	}
	u := new(upstreams)
	args := []string{"--kind", kind}
	var err error
	switch kind {
	case kindHTTP:
	case kindApp:
		args = append(args, "--socket", h.appSocket())
	default:
		var peers []string
		if kind == kindSecure {
			if peers, err = peerArgs(h.dir); err != nil {
				return nil, err
			}
		}
		if u.router, err = h.startRouter("router-"+kind, h.programs.Router, kind, h.place.proxy, peers...); err != nil {
			return nil, err
		}
		args = append(args, peers...)
		args = append(args, "--cluster", kind, "--join", u.router.gossip, "--redis", "redis://"+h.redis)
		args = append(args, h.with.memberArgs()...)
	}
	if u.process, u.addrs, err = h.startOrigin("upstreams-"+kind, args...); err != nil {
		return nil, err
	}
	h.origins[kind] = u
	return u, nil
}

// proxy starts a contestant that speaks f, if it does not run yet.
func (h *hop) proxy(name string, f front) (*proxy, error) {
	f = cmp.Or(f, frontHTTP)
	id := name
	if f == frontTLS && name != haproxy && name != nginx {
		id += ", TLS" // a router listens once
	}
	if p := h.running[id]; p != nil {
		return p, nil
	}
	u, err := h.upstreams(kindOf(name))
	if err != nil {
		return nil, err
	}
	var p *proxy
	switch {
	case name == haproxy:
		p, err = h.startHAProxy("haproxy", u.addrs)
	case name == haproxyApp:
		p, err = h.startHAProxy("haproxy-app", []string{"unix@" + h.appSocket()})
	case name == sidecar:
		p, err = h.sidecarProxy(h.programs.Worker, "sidecar")
	case name == sidecarOther:
		p, err = h.sidecarProxy(h.otherWorker, "sidecar-other")
	case name == nginx:
		p, err = h.startNginx("nginx", true, u.addrs)
	case slices.Contains([]string{doorsAny, doorsOwner, doorsRouter, doorAlone}, name):
		p, err = h.doorsProxy(name)
	case name == keywayNetHTTP:
		p, err = h.netHTTPProxy(u)
	case name == keywayOther || f == frontTLS:
		p, err = h.anotherRouter(id, name, f, u)
	default:
		p = routerProxy(u.router, f)
	}
	if err != nil {
		return nil, err
	}
	switch {
	case p.link != nil:
		err = h.awaitLink(p)
	case f != frontHTTP2:
		err = h.probe(p.addr[f], f == frontTLS)
	}
	h.running[id] = p
	return p, err
}

func routerProxy(r *router, f front) *proxy {
	addrs := map[front]string{frontHTTP: r.listen, frontHTTP2: r.listen}
	if f == frontTLS {
		addrs = map[front]string{frontTLS: r.listen}
	}
	return &proxy{process: r.Process, addr: addrs}
}

// anotherRouter starts one more router of a cluster.
func (h *hop) anotherRouter(id, name string, f front, u *upstreams) (*proxy, error) {
	args := []string{"--join", u.router.gossip}
	if f == frontTLS {
		tls, err := h.tlsArgs()
		if err != nil {
			return nil, err
		}
		args = append(args, tls...)
	}
	program := h.programs.Router
	if name == keywayOther {
		program = h.other
	}
	r, err := h.startRouter(strings.NewReplacer(" ", "", ",", "-").Replace("router-"+id), program, kindOf(name), h.place.proxy, args...)
	if err != nil {
		return nil, err
	}
	return routerProxy(r, f), nil
}

// tlsArgs are flags of a router that takes TLS.
func (h *hop) tlsArgs() ([]string, error) {
	dir, err := os.MkdirTemp(h.dir, "tls-")
	if err != nil {
		return nil, err
	}
	return []string{"--tls-cert", filepath.Join(dir, "cert.pem"), "--tls-key", filepath.Join(dir, "cert.key.pem")}, h.writeCertificate(dir)
}

// probeKeys is how many keys must be answered in a row.
const probeKeys = 100

// probe waits until requests are answered.
func (h *hop) probe(addr string, tls bool) error {
	url, transport := "http://"+addr+"/1", &http.Transport{}
	if tls {
		url, transport.TLSClientConfig = "https://"+addr+"/1", insecure()
	}
	return servers.AwaitAnswers(h.ctx, &http.Client{Transport: transport}, url, load.HeaderKey, probedKeys())
}

func probedKeys() (names []string) {
	for i := range probeKeys {
		names = append(names, load.KeyName(i*37))
	}
	return names
}

// startIdle opens connections that stay until the process is stopped.
func (h *hop) startIdle(cfg load.Config) (*proc.Process, error) {
	arg, err := json.Marshal(cfg)
	if err != nil {
		return nil, err
	}
	spec, err := h.self("load-idle", "load", string(arg))
	if err != nil {
		return nil, err
	}
	spec.Ready = "idle"
	return h.stage.Start(h.ctx, spec)
}

// extras measures what would disturb a turn: system calls per request by
// contestant, if wanted, and profiles.
func (h *hop) extras(s scenario) (calls map[string]float64, err error) {
	if h.syscalls {
		calls = make(map[string]float64)
		for _, name := range s.field {
			if calls[name], err = h.countCalls(s, name); err != nil {
				return nil, fmt.Errorf("counting system calls of %s: %w", name, err)
			}
		}
	}
	if h.profile == "" {
		return calls, nil
	}
	for _, name := range s.field {
		if err := h.profileTurn(s, name); err != nil {
			return nil, fmt.Errorf("profiling %s: %w", name, err)
		}
	}
	return calls, nil
}

// watched runs a tool that watches the proxy for the length of a turn, and
// returns what the tool printed in the end.
func (h *hop) watched(s scenario, name string, tool func(pids string) []string) (string, load.Result, error) {
	p, err := h.proxy(name, s.front)
	if err != nil {
		return "", load.Result{}, err
	}
	var pids []string
	for _, pid := range p.pids() {
		pids = append(pids, strconv.Itoa(pid))
	}
	args := tool(strings.Join(pids, ","))
	path := proc.Find(args[0])
	if path == "" {
		return "", load.Result{}, fmt.Errorf("%s is not installed (Debian: linux-perf)", args[0])
	}
	w, err := h.stage.Start(h.ctx, proc.Spec{Name: "watch", Program: path, Args: args[1:], CPUs: h.place.others})
	if err != nil {
		return "", load.Result{}, err
	}
	<-time.After(200 * time.Millisecond) // until it is attached
	r, err := h.load(h.config(s, p))
	return h.stage.Stop(w, syscall.SIGINT), r, err
}

// countCalls returns the proxy's system calls per request.
func (h *hop) countCalls(s scenario, name string) (float64, error) {
	report, r, err := h.watched(s, name, func(pids string) []string {
		return []string{"perf", "stat", "-x", ",", "-e", "raw_syscalls:sys_enter", "-p", pids}
	})
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(report) {
		if n, err := strconv.ParseFloat(strings.SplitN(line, ",", 2)[0], 64); err == nil {
			return n / float64(r.Total), nil
		}
	}
	return 0, fmt.Errorf("perf's report is not understood:\n%s", report)
}

// profileTurn records where the proxy spends its time in a turn of its own, and
// prints the command that shows it.
func (h *hop) profileTurn(s scenario, name string) error {
	if err := os.MkdirAll(h.profile, 0o755); err != nil {
		return err
	}
	file := filepath.Join(h.profile, strings.NewReplacer(" ", "", ",", "-", "/", "").Replace(s.name+"-"+name)) + ".perf"
	_, _, err := h.watched(s, name, func(pids string) []string {
		return []string{"perf", "record", "-q", "-e", "cpu-clock", "-F", "1999", "-g", "-o", file, "-p", pids}
	})
	fmt.Fprintf(h.out, "  %s: perf report -g none --no-children -i %s\n", name, file)
	return err
}
