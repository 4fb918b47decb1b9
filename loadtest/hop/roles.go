//go:build linux

package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"github.com/keyway-go/keyway/loadtest/hop/internal/origin"
	"github.com/keyway-go/keyway/loadtest/internal/load"
)

// instances is how many upstreams or workers there are.
const instances = 3

// runLoad is the load generator: its argument is a load.Config, what it prints
// a load.Result.
func runLoad(ctx context.Context, args []string, stdout io.Writer) error {
	var cfg load.Config
	if err := json.Unmarshal([]byte(args[0]), &cfg); err != nil {
		return err
	}
	if cfg.Time == 0 {
		return load.Hold(ctx, cfg, func() { fmt.Fprintln(stdout, "idle") })
	}
	result, err := load.Run(ctx, cfg)
	if err != nil {
		return err
	}
	fmt.Fprint(stdout, "result ")
	return json.NewEncoder(stdout).Encode(result)
}

// load makes a load from the cores for others than the proxy.
func (h *hop) load(cfg load.Config) (load.Result, error) { return h.loadAs("load", cfg) }

// loadAs is load by a process of that name.
func (h *hop) loadAs(name string, cfg load.Config) (r load.Result, err error) {
	arg, err := json.Marshal(cfg)
	if err != nil {
		return r, err
	}
	spec, err := h.self(name, "load", string(arg))
	if err != nil {
		return r, err
	}
	spec.Ready = "result "
	spec.Env = append(spec.Env, "GOMAXPROCS=1")
	line, err := h.stage.Run(h.ctx, spec)
	if err != nil {
		return r, err
	}
	if err := h.stage.Check(); err != nil {
		return r, err
	}
	_, line, _ = strings.Cut(line, "result ")
	return r, json.Unmarshal([]byte(line), &r)
}

// listen opens a listener for each instance and returns their addresses.
func listen() (all []*net.TCPListener, addrs []string, err error) {
	for range instances {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, nil, err
		}
		all = append(all, l.(*net.TCPListener))
		addrs = append(addrs, l.Addr().String())
	}
	return all, addrs, nil
}

// Kinds of upstreams: how the workers behind a router answer, or what stands without one.
const (
	kindHTTP    = "http"    // no workers: an upstream for any proxy
	kindLink    = "link"    // over the link, without net/http
	kindHandler = "handler" // over the link, an http.Handler
	kindSecure  = "secure"  // as kindLink, over TLS
	kindPlain   = "plain"   // over HTTP/1.1, as kindHTTP does
	kindApp     = "app"     // no workers: an app as kindHTTP, on a Unix socket
)

// runOrigin is all upstreams of one kind, in one process.
func runOrigin(ctx context.Context, args []string, stdout io.Writer) error {
	var kind, socket string
	var cfg origin.MemberConfig
	flags := flag.NewFlagSet("origin", flag.ContinueOnError)
	flags.StringVar(&kind, "kind", kindHTTP, "how to answer")
	flags.StringVar(&socket, "socket", "", "path of the socket of an app")
	flags.StringVar(&cfg.Cluster, "cluster", "", "name of the cluster")
	flags.StringVar(&cfg.Join, "join", "", "gossip address of the router")
	flags.StringVar(&cfg.Redis, "redis", "", "URL of the store")
	flags.StringVar(&cfg.Peers.CertFile, "peer-cert", "", "file of the workers' certificate, for TLS between members")
	flags.StringVar(&cfg.Peers.KeyFile, "peer-key", "", "file of its key")
	flags.StringVar(&cfg.Peers.CAFile, "peer-ca", "", "file of its CA")
	flags.StringVar(&cfg.GossipKey, "gossip-key", "", "key of gossip, in hex")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if kind == kindApp {
		return runApp(ctx, socket, stdout)
	}
	listeners, addrs, err := listen()
	if err != nil {
		return err
	}
	members := make([]*origin.Member, 0, instances)
	if kind != kindHTTP {
		for i, addr := range addrs {
			cfg.Name, cfg.Addr = "w"+strconv.Itoa(i+1), addr
			m, err := origin.Join(ctx, cfg)
			if err != nil {
				return err
			}
			defer m.Leave()
			members = append(members, m)
		}
	}
	failed := make(chan error, instances)
	answer(kind, listeners, members, failed)
	if len(members) > 0 {
		if err := origin.AwaitAll(ctx, members); err != nil {
			return err
		}
	}
	fmt.Fprintln(stdout, "ready", strings.Join(addrs, " "))
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// runApp is an app on a Unix socket.
func runApp(ctx context.Context, socket string, stdout io.Writer) error {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- new(origin.HTTP).Serve(origin.Listener{Net: l.(*net.UnixListener)}) }()
	fmt.Fprintln(stdout, "ready", socket)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// answer answers requests to the listeners, each of the member with its index.
func answer(kind string, listeners []*net.TCPListener, members []*origin.Member, failed chan<- error) {
	sizes := new(origin.Sizes)
	var raw []origin.Listener
	for i, l := range listeners {
		switch kind {
		case kindHTTP:
			raw = append(raw, origin.Listener{Net: l})
		case kindPlain:
			raw = append(raw, origin.Listener{Net: l, Guard: members[i].Guard})
		case kindLink, kindSecure:
			go func() { failed <- members[i].NewServer(members[i].LinkHandler(sizes.ServeLink)).Serve(l) }()
		case kindHandler:
			go func() { failed <- members[i].NewServer(members[i].Handler(sizes)).Serve(l) }()
		}
	}
	if raw != nil {
		go func() { failed <- new(origin.HTTP).Serve(raw...) }()
	}
}
