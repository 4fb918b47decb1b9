package router

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/keyway-go/keyway/internal/wire/grammar"
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

// setForwarded sets in h what tells of this hop, behind what the client's
// proxies have said in prior.
func setForwarded(h http.Header, in *http.Request, prior http.Header) {
	client, _, err := net.SplitHostPort(in.RemoteAddr)
	if err != nil {
		client = "unknown"
	}
	proto := "http"
	if in.TLS != nil {
		proto = "https"
	}
	node := client
	if strings.Contains(client, ":") {
		node = `"[` + client + `]"`
	}
	appendList(h, prior, "Forwarded", "for="+node+";host="+quoteToken(in.Host)+";proto="+proto)
	appendList(h, prior, "X-Forwarded-For", client)
	appendList(h, prior, "X-Forwarded-Host", in.Host)
	appendList(h, prior, "X-Forwarded-Proto", proto)
}

func appendList(h, prior http.Header, name, value string) {
	if before := prior[name]; len(before) > 0 {
		value = strings.Join(before, ", ") + ", " + value
	}
	h[name] = []string{value}
}

func quoteToken(s string) string {
	if grammar.IsToken(s) {
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}
