// Package fields says which fields of requests reach the app, and which fields of answers reach the
// client, over every way in and out of a router and a worker.
package fields

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/problem"
	"github.com/keyway-go/keyway/internal/wire/grammar"
	"github.com/keyway-go/keyway/internal/wire/http1"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// Kind says what a field of a request, or of an answer, is about.
type Kind uint8

// The kinds of fields.
const (
	EndToEnd  Kind = iota // goes on
	Keyway                // Keyway's own
	Hop                   // about one connection, or the message's framing (RFC 9110, section 7.6.1)
	TE                    // likewise; tells the app whether trailers are welcome
	Forwarded             // one of those that setForwarded writes
	Proxy                 // what else proxies say of the client
	Alias                 // one of the above to a server that takes _ or . for -
)

// KindOf returns the kind of the field of that name, in any case. In names, _ and . count as -:
// servers in the manner of CGI (WSGI, Rack, PHP) hand them to the app under one name.
func KindOf(name string) Kind {
	kind := literalKind(name)
	if kind != EndToEnd && strings.ContainsAny(name, "_.") {
		return Alias
	}
	return kind
}

func literalKind(name string) Kind {
	if name == "" {
		return EndToEnd
	}
	switch name[0] | 0x20 {
	case 'k':
		if IsKeyway(name) {
			return Keyway
		}
		return hopKind(name)
	case 'x':
		switch {
		case isFolded(name, "x-forwarded-for"), isFolded(name, "x-forwarded-host"), isFolded(name, "x-forwarded-proto"):
			return Forwarded
		case hasFolded(name, "x-forwarded-"), isFolded(name, "x-real-ip"):
			return Proxy
		}
	case 'f':
		if isFolded(name, "forwarded") {
			return Forwarded
		}
	case 'c', 'e', 'h', 'p', 't', 'u':
		return hopKind(name)
	}
	return EndToEnd
}

func hopKind(name string) Kind {
	var memory [len("proxy-authorization")]byte
	if len(name) > len(memory) {
		return EndToEnd
	}
	folded := memory[:len(name)]
	for i := range folded {
		folded[i] = foldByte(name[i])
	}
	switch string(folded) {
	case "te":
		return TE
	case "trailer", "proxy-authenticate", "proxy-authorization":
		return Hop
	}
	if grammar.IsHopField(folded) {
		return Hop
	}
	return EndToEnd
}

func isFolded(name, lower string) bool { return len(name) == len(lower) && hasFolded(name, lower) }

// hasFolded reports whether name begins with prefix, which is in lower case and
// has - for _ and . in it.
func hasFolded(name string, prefix string) bool {
	if len(name) < len(prefix) {
		return false
	}
	for i := range len(prefix) {
		if foldByte(name[i]) != prefix[i] {
			return false
		}
	}
	return true
}

func foldByte(c byte) byte {
	switch {
	case 'A' <= c && c <= 'Z':
		return c | 0x20
	case c == '_' || c == '.':
		return '-'
	}
	return c
}

func fold(name string) string {
	b := []byte(name)
	for i, c := range b {
		b[i] = foldByte(c)
	}
	return string(b)
}

// IsKeyway reports whether only Keyway itself may set the field.
func IsKeyway(name string) bool { return hasFolded(name, "keyway-") }

// StripKeyway removes the headers that only Keyway itself may set.
func StripKeyway(h http.Header) {
	maps.DeleteFunc(h, func(name string, _ []string) bool { return IsKeyway(name) })
}

// Rules say which fields of a request are sent on towards the app, at a router and at a worker.
type Rules struct {
	keys     []keyHeader
	upgrades []string // protocols that may be changed to, in lower case
}

// keyHeader is the name of a header that may hold a key.
type keyHeader struct{ name, folded string }

// NewRules returns an error for a protocol that cannot be allowed.
func NewRules(keys gateway.KeySources, upgrades []string) (Rules, error) {
	var r Rules
	for i := range keys {
		if name := keys[i].Header(); name != "" {
			r.keys = append(r.keys, keyHeader{name, fold(name)})
		}
	}
	if upgrades == nil {
		upgrades = []string{"websocket"}
	}
	for _, protocol := range upgrades {
		if err := grammar.CheckUpgrade(protocol); err != nil {
			return r, fmt.Errorf("gateway: Config.Upgrades: %w", err)
		}
		r.upgrades = append(r.upgrades, strings.ToLower(protocol))
	}
	return r, nil
}

// Drops reports whether the app never gets a field, regardless of its sender. This holds for
// Keyway's own fields, those of one connection, names that a server might take for either, and
// names that it might take for the header that the key was read from.
func (r *Rules) Drops(kind Kind, name string) bool {
	switch kind {
	case Keyway, Hop, Alias:
		return true
	}
	for i := range r.keys {
		if k := &r.keys[i]; isFolded(name, k.folded) && !strings.EqualFold(name, k.name) {
			return true
		}
	}
	return false
}

// Upgrade returns the first protocol that the request asks for and that is
// allowed; "" if there is none.
func (r *Rules) Upgrade(h http.Header) string {
	if len(h["Upgrade"]) == 0 || !ConnectionNames(h["Connection"])("Upgrade") {
		return ""
	}
	for protocol := range grammar.Items(h["Upgrade"]) {
		if slices.Contains(r.upgrades, strings.ToLower(protocol)) {
			return protocol
		}
	}
	return ""
}

// Clean removes from h the fields that must not reach the app, and those that the client's
// Connection names. Fields of proxies stay if their peer is trusted. Clean returns the protocol
// that the app may switch to, "" for none.
func (r *Rules) Clean(h http.Header, trusted bool) (upgrade string) {
	upgrade = r.Upgrade(h)
	named := ConnectionNames(h["Connection"])
	for name := range h {
		kind := KindOf(name)
		if kind == TE && ConnectionNames(h[name])("trailers") || name == "Trailer" || name == "Content-Length" {
			continue // net/http goes by them
		}
		if kind == TE || r.Drops(kind, name) || named(name) || !trusted && (kind == Forwarded || kind == Proxy) {
			delete(h, name)
		}
	}
	if upgrade != "" {
		h["Connection"] = []string{"Upgrade"}
		h["Upgrade"] = []string{upgrade}
	}
	return upgrade
}

// IsTrailer reports whether a field may follow a message's body. It may not if it frames, routes or
// authenticates the message, changes a decision made before the body, or describes the body (RFC
// 9110, section 6.5.1).
func IsTrailer(name string) bool {
	if KindOf(name) != EndToEnd {
		return false
	}
	switch folded := fold(name); folded {
	case "set-cookie", "baggage", "age", "date", "expires", "location", "retry-after", "vary", "warning",
		"content-location", "content-language", "content-disposition":
		return false
	default:
		return !grammar.IsBeforeBody(folded)
	}
}

// IsTrailer reports whether the field may stand behind a request's body.
func (r *Rules) IsTrailer(name string) bool {
	return IsTrailer(name) && !slices.ContainsFunc(r.keys, func(k keyHeader) bool { return isFolded(name, k.folded) })
}

// StripTrailer removes forbidden trailers of a request.
func (r *Rules) StripTrailer(trailer http.Header) {
	maps.DeleteFunc(trailer, func(name string, _ []string) bool { return !r.IsTrailer(name) })
}

// publicTrailers returns those of a list of trailers' names that may be there.
func publicTrailers(list string) string {
	var names []string
	for name := range grammar.Items([]string{list}) {
		if IsTrailer(name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// LeaveUntyped keeps net/http from guessing the type of an answer that has none.
func LeaveUntyped(h http.Header) {
	if _, typed := h["Content-Type"]; !typed {
		h["Content-Type"] = nil
	}
}

// CleanAnswer removes from the head of an answer all fields that the client must not get. It leaves
// those that net/http itself interprets.
func CleanAnswer(h http.Header) {
	for name := range h {
		switch name {
		case "Connection", "Upgrade", "Transfer-Encoding", "Content-Length", "Trailer":
			continue
		}
		if !isPublic(name) {
			delete(h, name)
		}
	}
	if announced := h["Trailer"]; announced != nil {
		if h.Set("Trailer", publicTrailers(strings.Join(announced, ","))); h.Get("Trailer") == "" {
			delete(h, "Trailer")
		}
	}
}

// CleanTrailers removes forbidden trailers from an answer's header once its body has ended.
// net/http sends the trailers announced in the head and those with http.TrailerPrefix.
func CleanTrailers(h http.Header) {
	maps.DeleteFunc(h, func(name string, _ []string) bool {
		trailer, prefixed := strings.CutPrefix(name, http.TrailerPrefix)
		return IsKeyway(name) || prefixed && !IsTrailer(trailer)
	})
}

// BadForm reports whether no app may get a request, with any key. It would make the app a proxy or a
// mirror, or its target has no path, no host, or a #. kind is its answer. Servers answer OPTIONS *
// themselves, so it does not arrive here.
func BadForm(method, path, target, host string) (kind problem.Kind, bad bool) {
	switch {
	case method == http.MethodConnect:
		return problem.Connect, true
	case method == http.MethodTrace:
		return problem.Trace, true
	case link.IsCall(method):
		return problem.BadMethod, true
	case !strings.HasPrefix(path, "/"),
		strings.Contains(target, "#"),     // at which some apps cut it
		host != "" && !http1.IsHost(host): // which net/http takes as it is in an absolute target
		return problem.BadTarget, true
	}
	return 0, false
}

// ConnectionNames returns a function that reports whether a Connection field
// names a header, which then concerns that connection only.
func ConnectionNames(values []string) func(name string) bool {
	if len(values) == 0 {
		return func(string) bool { return false }
	}
	return func(name string) bool {
		for item := range grammar.Items(values) {
			if strings.EqualFold(item, name) {
				return true
			}
		}
		return false
	}
}

// ToClient returns the part of an answer's field that the client gets.
func ToClient(name, value string) (string, bool) {
	if name == "Trailer" {
		value = publicTrailers(value)
		return value, value != ""
	}
	return value, isPublic(name)
}

// isPublic reports whether the client gets the field of an answer.
func isPublic(name string) bool {
	switch KindOf(name) {
	case Keyway, Hop, TE, Alias:
		return false
	}
	return true
}
