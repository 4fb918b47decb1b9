package router

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/spool"
	"github.com/keyway-go/keyway/internal/keysource"
	"github.com/keyway-go/keyway/internal/wire/grammar"
	"github.com/keyway-go/keyway/internal/wire/h2"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// source is the origin of requests: a client's connection or, with net/http, a single
// [http.Request]. Only the two atomic fields change after init.
type source struct {
	server  *Server // that writes to it; nil for net/http's
	addr    string  // the client's address
	trusted bool    // what it says in forwarding fields is believed
	id      uint64  // tells the client apart, see [hop.ClientID]
	version string  // of HTTP

	abandoned atomic.Int64                // requests that the client has given up and a worker still works on
	forwarded atomic.Pointer[forwardedTo] // the last ones
}

// init makes s a source at that address, which speaks that version of HTTP.
func (s *source) init(rt *Router, server *Server, addr, version string) {
	s.server, s.addr, s.trusted, s.version = server, addr, rt.trusts(addr), version
	s.id = hop.ClientID(keysource.HostOf(addr))
}

// origin returns the client's address, as trusted proxies have added it to X-Forwarded-For, in the
// spelling of [netip.Addr.String].
// forwarded is the value of that field for the worker.
func (s *source) origin(rt *Router, forwarded string) string {
	origin := keysource.HostOf(s.addr)
	for s.trusted {
		last := strings.LastIndexByte(forwarded, ',')
		origin = strings.TrimSpace(forwarded[last+1:])
		addr, err := netip.ParseAddr(origin)
		if err != nil { // some proxies add the port, or brackets
			origin = strings.Trim(keysource.HostOf(origin), "[]")
			addr, err = netip.ParseAddr(origin)
		}
		if addr.Is6() { // whose other spellings are the same client
			origin = addr.Unmap().String()
		}
		if last < 0 || err != nil || !isIn(rt.cfg.TrustedProxies, addr) {
			break
		}
		forwarded = forwarded[:last]
	}
	return origin
}

// originID returns a number that identifies the client whose address origin returns.
func (s *source) originID(rt *Router, forwarded string) uint64 {
	if !s.trusted {
		return s.id
	}
	return hop.ClientID(s.origin(rt, forwarded))
}

// account returns that of the client, see keyClient.
func (s *source) account(rt *Router, forwarded []string) spool.Account {
	return rt.budget.Of(hop.ClientID(s.keyClient(rt, forwarded)))
}

// keyClient returns the client's address as a key: that of the connection, or what
// trusted proxies have said in fields of the name forwardedFor.
func (s *source) keyClient(rt *Router, forwarded []string) string {
	if !s.trusted {
		return keysource.HostOf(s.addr)
	}
	return strings.Clone(s.origin(rt, strings.Join(append(forwarded[:len(forwarded):len(forwarded)], keysource.HostOf(s.addr)), ",")))
}

// forwardedTo is the description of this hop in requests for a host.
type forwardedTo struct {
	host   string
	tls    bool
	fields link.Fields
}

// appendForwarding appends the fields that describe this hop in a request for the host, after
// values of the same names in prior.
func (s *source) appendForwarding(f link.Fields, host string, tls bool, prior []h2.Field) link.Fields {
	if last := s.forwarded.Load(); prior == nil && last != nil && last.host == host && last.tls == tls {
		return append(f, last.fields...)
	}
	begin := len(f)
	for i, value := range forwardingValues(s.addr, host, tls) {
		if prior != nil {
			value = strings.Join(append(appendValues(nil, prior, forwardingNames[i]), value), ", ")
		}
		f = link.AppendField(f, forwardingNames[i], value)
	}
	if prior == nil && s.server != nil {
		s.forwarded.Store(&forwardedTo{strings.Clone(host), tls, slices.Clone(f[begin:])})
	}
	return f
}

func appendValues(values []string, list []h2.Field, name string) []string {
	for i := range list {
		if f := &list[i]; len(f.Name) == len(name) && strings.EqualFold(f.Name, name) {
			values = append(values, f.Value)
		}
	}
	return values
}

const forwardedFor = "X-Forwarded-For"

// forwardingNames are the names of the fields that describe a hop.
var forwardingNames = [...]string{"Forwarded", forwardedFor, "X-Forwarded-Host", "X-Forwarded-Proto"}

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
