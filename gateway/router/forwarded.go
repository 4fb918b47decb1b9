package router

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/keyway-go/keyway/internal/wire/grammar"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// trusts reports whether what the peer at that address says of clients is
// believed. An address that is not of IP is not trusted.
func (rt *Router) trusts(remote string) bool {
	if len(rt.cfg.TrustedProxies) == 0 {
		return false
	}
	peer, err := netip.ParseAddrPort(remote)
	if err != nil {
		return false
	}
	addr := peer.Addr().Unmap().WithZone("")
	return slices.ContainsFunc(rt.cfg.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// source is where requests come from: one connection of a client, or in place of
// it an [http.Request].
type source struct {
	server  *Server // that writes to it; nil for net/http's
	addr    string  // the client's address
	trusted bool    // what it says in forwarding fields is believed
	version string  // of HTTP

	abandoned atomic.Int64                // requests that the client has given up and a worker still works on
	forwarded atomic.Pointer[forwardedTo] // the last ones
}

// forwardedTo is what tells of this hop in requests for a host.
type forwardedTo struct {
	host   string
	tls    bool
	fields link.Fields
}

// appendForwarding appends what tells of this hop, behind what a trusted client
// has said in such fields if prior is set.
func (x *upstreamRequest) appendForwarding(f link.Fields, prior bool) link.Fields {
	s := x.source
	if last := s.forwarded.Load(); !prior && last != nil && last.host == x.request.Host && last.tls == x.tls {
		return append(f, last.fields...)
	}
	begin := len(f)
	for i, value := range forwardingValues(s.addr, x.request.Host, x.tls) {
		if prior {
			value = strings.Join(append(x.KeyHeader(forwardingNames[i]), value), ", ")
		}
		f = link.AppendField(f, forwardingNames[i], value)
	}
	if via := x.router.cfg.Via; via != "" {
		f = link.AppendField(f, "Via", s.version+" "+via)
	}
	if !prior && s.server != nil {
		s.forwarded.Store(&forwardedTo{strings.Clone(x.request.Host), x.tls, slices.Clone(f[begin:])})
	}
	return f
}

// setForwarded sets in h what tells of this hop, behind what the client's
// proxies have said in prior.
func setForwarded(h http.Header, in *http.Request, prior http.Header) {
	for i, value := range forwardingValues(in.RemoteAddr, in.Host, in.TLS != nil) {
		name := forwardingNames[i]
		h[name] = []string{strings.Join(append(slices.Clip(prior[name]), value), ", ")}
	}
}

// forwardingNames are the names of what tells of a hop.
var forwardingNames = [...]string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"}

// forwardingValues returns what these say of a request from addr.
func forwardingValues(addr, host string, tls bool) [len(forwardingNames)]string {
	client, _, err := net.SplitHostPort(addr)
	if err != nil {
		client = "unknown"
	}
	proto := "http"
	if tls {
		proto = "https"
	}
	node := client
	if strings.Contains(client, ":") {
		node = `"[` + client + `]"`
	}
	return [...]string{"for=" + node + ";host=" + quoteToken(host) + ";proto=" + proto, client, host, proto}
}

func quoteToken(s string) string {
	if grammar.IsToken(s) {
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}
