package routes

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/pattern"
)

// errPath is the error of a path that an app may read as another one.
var errPath = fmt.Errorf("%w: the path has a segment that is empty or made of dots, or a bad percent-encoding", gateway.ErrBadKey)

// errSlash is the error of a path whose route depends on how an encoded slash is read.
var errSlash = fmt.Errorf("%w: the path has an encoded slash, and another route with a plain one", gateway.ErrBadKey)

// Match returns the route that takes a request: the first that matches. path is
// percent-encoded, host may have a port. If no route does the error is [ErrNoRoute]. In
// a table whose routes have paths, a path that an app may read as another one is an
// error that wraps [gateway.ErrBadKey]: it would come to the app by the wrong route.
func (t *Table) Match(host, method, path string) (*Route, error) {
	return t.match(host, method, method, path)
}

// MatchPreflight is Match for a request of CORS, of the method OPTIONS, that asks
// whether one of that method may be sent.
func (t *Table) MatchPreflight(host, method, path string) (*Route, error) {
	return t.match(host, "OPTIONS", method, path)
}

func (t *Table) match(host, method, other, path string) (*Route, error) {
	if t.hosts {
		host = hostName(host)
	}
	if t.strict && !pattern.IsClean(path) {
		return nil, errPath
	}
	q := query{host: host, method: method, other: other, path: path, encoded: t.strict && strings.IndexByte(path, '%') >= 0}
	r := t.index.first(&q)
	if q.encoded && (strings.Contains(path, "%2F") || strings.Contains(path, "%2f")) {
		q.path = withSlashes(path)
		if plain := t.index.first(&q); plain != r && plain != nil {
			return nil, errSlash
		}
	}
	if r == nil {
		return nil, ErrNoRoute
	}
	return r, nil
}

// hostName is [gateway.HostName], faster for a plain name with or without a port.
func hostName(host string) string {
	name := host
	for i := range len(host) {
		switch c := host[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '.' && i < len(host)-1 && host[i+1] != ':':
		case c == ':' && i > 0 && name == host:
			name = host[:i]
		default:
			return gateway.HostName(host)
		}
	}
	return name
}

func (r *Route) takesMethod(method string) bool {
	if len(r.Match.Methods) == 0 || slices.Contains(r.Match.Methods, method) {
		return true
	}
	return method == "HEAD" && slices.Contains(r.Match.Methods, "GET")
}

// takesHost reports whether the route takes requests for a host, in lower case and
// without its port.
func (r *Route) takesHost(host string) bool {
	if len(r.Match.Hosts) == 0 {
		return true
	}
	for _, h := range r.Match.Hosts {
		if h == host || coversHost(h, host) {
			return true
		}
	}
	return false
}

// coversHost reports whether a host, which may be of the form *.example.com too, is
// below one of that form.
func coversHost(wild, host string) bool {
	return wild[0] == '*' && len(host) >= len(wild) && host[len(host)-len(wild)+1:] == wild[1:] && host != wild
}

// withSlashes returns the path as an app sees it that decodes it before it looks for
// segments.
func withSlashes(path string) string {
	decoded, err := url.PathUnescape(path)
	if err != nil {
		return path
	}
	return strings.ReplaceAll(url.PathEscape(decoded), "%2F", "/")
}
