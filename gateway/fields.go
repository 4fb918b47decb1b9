package gateway

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/keyway-go/keyway/internal/wire/grammar"
)

// fieldKind says what a field of a request, or of an answer, is about.
type fieldKind uint8

const (
	fieldEndToEnd  fieldKind = iota // goes on
	fieldKeyway                     // Keyway's own
	fieldHop                        // about one connection, or the message's framing (RFC 9110, section 7.6.1)
	fieldTE                         // likewise; tells the app whether trailers are welcome
	fieldForwarded                  // one of those that setForwarded writes
	fieldProxy                      // what else proxies say of the client
	fieldAlias                      // one of the above to a server that takes _ or . for -
)

// kindOf returns the kind of the field of that name, in any case. In names, _
// and . count as -: servers in the manner of CGI (WSGI, Rack, PHP) hand them to
// the app under one name.
func kindOf(name string) fieldKind {
	kind := literalKind(name)
	if kind != fieldEndToEnd && !isLiteral(name) {
		return fieldAlias
	}
	return kind
}

func literalKind(name string) fieldKind {
	if name == "" {
		return fieldEndToEnd
	}
	switch name[0] | 0x20 {
	case 'k':
		switch {
		case isKeyway(name):
			return fieldKeyway
		case isFolded(name, "keep-alive"):
			return fieldHop
		}
	case 'x':
		switch {
		case isFolded(name, "x-forwarded-for"), isFolded(name, "x-forwarded-host"), isFolded(name, "x-forwarded-proto"):
			return fieldForwarded
		case hasFolded(name, "x-forwarded-"), isFolded(name, "x-real-ip"):
			return fieldProxy
		}
	case 'f':
		if isFolded(name, "forwarded") {
			return fieldForwarded
		}
	case 'c', 'e', 'h', 'p', 't', 'u':
		return hopKind(name)
	}
	return fieldEndToEnd
}

func hopKind(name string) fieldKind {
	hop := false
	switch len(name) {
	case 2:
		if isFolded(name, "te") {
			return fieldTE
		}
	case 6:
		hop = isFolded(name, "expect")
	case 7:
		hop = isFolded(name, "upgrade") || isFolded(name, "trailer")
	case 10:
		hop = isFolded(name, "connection")
	case 14:
		hop = isFolded(name, "content-length") || isFolded(name, "http2-settings")
	case 16:
		hop = isFolded(name, "proxy-connection")
	case 17:
		hop = isFolded(name, "transfer-encoding")
	case 18:
		hop = isFolded(name, "proxy-authenticate")
	case 19:
		hop = isFolded(name, "proxy-authorization")
	}
	if hop {
		return fieldHop
	}
	return fieldEndToEnd
}

// isFolded reports whether name, folded, is lower.
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

// isLiteral reports whether folding leaves name as it is but for its case.
func isLiteral(name string) bool {
	for i := range len(name) {
		if name[i] == '_' || name[i] == '.' {
			return false
		}
	}
	return true
}

func fold(name string) string {
	b := []byte(name)
	for i, c := range b {
		b[i] = foldByte(c)
	}
	return string(b)
}

// isKeyway reports whether only Keyway itself may set the field.
func isKeyway(name string) bool { return hasFolded(name, "keyway-") }

// stripKeyway removes the headers that only Keyway itself may set.
func stripKeyway(h http.Header) {
	for name := range h {
		if isKeyway(name) {
			delete(h, name)
		}
	}
}

// fieldRules say which fields of a request go on towards the app, at a router
// and at a worker.
type fieldRules struct {
	keys     []keyHeader
	upgrades []string // protocols that may be changed to, in lower case
}

// keyHeader is the name of a header in which a key is looked for.
type keyHeader struct{ name, folded string }

// newFieldRules returns an error for a protocol that cannot be allowed.
func newFieldRules(keys []KeySource, upgrades []string) (fieldRules, error) {
	var r fieldRules
	for i := range keys {
		if name := keys[i].Header(); name != "" {
			r.keys = append(r.keys, keyHeader{name, fold(name)})
		}
	}
	if upgrades == nil {
		upgrades = []string{"websocket"}
	}
	for _, protocol := range upgrades {
		if err := CheckUpgrade(protocol); err != nil {
			return r, err
		}
		r.upgrades = append(r.upgrades, strings.ToLower(protocol))
	}
	return r, nil
}

// CheckUpgrade returns an error unless protocol, as in the header Upgrade (RFC
// 9110, section 7.8), can be one of RouterConfig.Upgrades and
// WorkerConfig.Upgrades. HTTP itself, also within TLS, cannot: its requests would
// reach the app with any key and token, and without their keys held.
func CheckUpgrade(protocol string) error {
	name, version, versioned := strings.Cut(protocol, "/")
	switch lower := strings.ToLower(name); {
	case !grammar.IsToken(name) || versioned && !grammar.IsToken(version):
		return fmt.Errorf("gateway: %q is not a protocol's name, such as websocket", protocol)
	case lower == "h2c" || lower == "h2" || lower == "http" || lower == "tls":
		return fmt.Errorf("gateway: upgrades to %s cannot be allowed: requests in it would reach the app without their keys held", protocol)
	}
	return nil
}

// drops reports whether a field is kept from the app whoever has sent it: what
// is Keyway's own or of one connection, what a server might take for that, and
// what it might take for the header that a key has been read from.
func (r *fieldRules) drops(kind fieldKind, name string) bool {
	switch kind {
	case fieldKeyway, fieldHop, fieldAlias:
		return true
	}
	for i := range r.keys {
		if k := &r.keys[i]; isFolded(name, k.folded) && !strings.EqualFold(name, k.name) {
			return true
		}
	}
	return false
}

// upgrade returns the first protocol that the request asks for and that is
// allowed; "" if there is none.
func (r *fieldRules) upgrade(h http.Header) string {
	if len(h["Upgrade"]) == 0 || !connectionNames(h["Connection"])("Upgrade") {
		return ""
	}
	for _, list := range h["Upgrade"] {
		for protocol := range strings.SplitSeq(list, ",") {
			if protocol = strings.TrimSpace(protocol); slices.Contains(r.upgrades, strings.ToLower(protocol)) {
				return protocol
			}
		}
	}
	return ""
}

// clean removes from h what does not go on towards the app, and what the
// client's Connection names; what proxies say stays if their peer is trusted. It
// returns the protocol that the app may change to, "" for none.
func (r *fieldRules) clean(h http.Header, trusted bool) (upgrade string) {
	upgrade = r.upgrade(h)
	named := connectionNames(h["Connection"])
	for name := range h {
		kind := kindOf(name)
		if kind == fieldTE || name == "Trailer" || name == "Content-Length" {
			continue // net/http goes by them
		}
		if r.drops(kind, name) || named(name) || !trusted && (kind == fieldForwarded || kind == fieldProxy) {
			delete(h, name)
		}
	}
	if upgrade != "" {
		h["Connection"] = []string{"Upgrade"}
		h["Upgrade"] = []string{upgrade}
	}
	return upgrade
}

// isTrailer reports whether a field may stand behind a message's body: not one
// that frames, routes or authenticates the message, that changes what has been
// decided before the body, or that says what the body is (RFC 9110, section
// 6.5.1).
func isTrailer(name string) bool {
	if kindOf(name) != fieldEndToEnd {
		return false
	}
	switch folded := fold(name); folded {
	case "authorization", "www-authenticate", "realm", "cookie", "set-cookie", "host", "baggage",
		"cache-control", "pragma", "max-forwards", "range", "age", "date", "expires", "location", "retry-after", "vary", "warning",
		"content-encoding", "content-type", "content-range", "content-location", "content-language", "content-disposition":
		return false
	default:
		return !strings.HasPrefix(folded, "if-")
	}
}

// isTrailer reports whether the field may stand behind a request's body.
func (r *fieldRules) isTrailer(name string) bool {
	for i := range r.keys {
		if isFolded(name, r.keys[i].folded) {
			return false
		}
	}
	return isTrailer(name)
}

// stripTrailer removes from a request's trailers those that may not be there.
func (r *fieldRules) stripTrailer(trailer http.Header) {
	for name := range trailer {
		if !r.isTrailer(name) {
			delete(trailer, name)
		}
	}
}

// publicTrailers returns those of a list of trailers' names that may be there.
func publicTrailers(list string) string {
	var names []string
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); isTrailer(name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// typeUnguessed keeps net/http from guessing the type of an answer that has none.
func typeUnguessed(h http.Header) {
	if _, typed := h["Content-Type"]; !typed {
		h["Content-Type"] = nil
	}
}

// cleanAnswer removes from the head of an answer what the client may not see.
func cleanAnswer(h http.Header) {
	stripKeyway(h)
	if announced := h["Trailer"]; announced != nil {
		if h.Set("Trailer", publicTrailers(strings.Join(announced, ","))); h.Get("Trailer") == "" {
			delete(h, "Trailer")
		}
	}
}

// cleanTrailers removes from an answer's header, once its body has ended, those
// trailers that may not be there. net/http sends what the head has announced,
// and what has http.TrailerPrefix.
func cleanTrailers(h http.Header) {
	stripKeyway(h)
	for name := range h {
		if trailer, prefixed := strings.CutPrefix(name, http.TrailerPrefix); prefixed && !isTrailer(trailer) {
			delete(h, name)
		}
	}
}

// refuseForm answers a request that no app is to get, whatever its key: one that
// would make of the app a proxy or a mirror, or whose target is no path. OPTIONS
// * does not come here: servers answer it themselves. It reports false for any
// other request.
func refuseForm(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case r.Method == http.MethodConnect:
		http.Error(w, "gateway: CONNECT is not supported", http.StatusNotImplemented)
	case r.Method == http.MethodTrace:
		w.Header().Set("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
		http.Error(w, "gateway: TRACE is not allowed", http.StatusMethodNotAllowed)
	case r.URL.Opaque != "" || r.URL.Path == "*":
		http.Error(w, "gateway: the request's target is no path", http.StatusBadRequest)
	default:
		return false
	}
	return true
}

// connectionNames returns a function that reports whether a Connection field
// names a header, which then concerns that connection only.
func connectionNames(values []string) func(name string) bool {
	if len(values) == 0 {
		return func(string) bool { return false }
	}
	return func(name string) bool {
		for _, v := range values {
			for item := range strings.SplitSeq(v, ",") {
				if strings.EqualFold(strings.TrimSpace(item), name) {
					return true
				}
			}
		}
		return false
	}
}
