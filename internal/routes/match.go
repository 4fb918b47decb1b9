package routes

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/keysource"
	"github.com/keyway-go/keyway/internal/pattern"
	"github.com/keyway-go/keyway/internal/wire/grammar"
)

// errMethod is the error of a method that some apps take for another one.
var errMethod = fmt.Errorf("%w: some apps ignore the case of a method: send it in upper case", gateway.ErrBadKey)

// Find returns the route of a request, and whether that is a preflight of CORS. See Match for its
// error.
func (t *Table) Find(method string, req keysource.Keyed) (r *Route, preflight bool, err error) {
	if method == http.MethodOptions && len(req.KeyHeader("Origin")) == 1 {
		if asked := req.KeyHeader("Access-Control-Request-Method"); len(asked) == 1 {
			r, err = t.match(req.KeyHost(), method, asked[0], req.KeyPath())
			return r, true, err
		}
	}
	r, err = t.Match(req.KeyHost(), method, req.KeyPath())
	return r, false, err
}

// Match returns the route that takes a request: the first that matches. path is
// percent-encoded, host may have a port. If no route does the error is [ErrNoRoute]. A
// method or, in a table that reads paths, a path that an app may take for one of another
// route is an error that wraps [gateway.ErrBadKey].
func (t *Table) Match(host, method, path string) (*Route, error) {
	return t.match(host, method, method, path)
}

// match is Match for a request that may have another method instead: of CORS, which asks
// whether one of that method may be sent.
func (t *Table) match(host, method, other, path string) (*Route, error) {
	if t.hosts {
		var err error
		if host, err = keysource.HostName(host); err != nil {
			return nil, err
		}
	}
	if t.keyed && strings.IndexFunc(method, unicode.IsLower) >= 0 {
		return nil, errMethod
	}
	var marks pattern.Marks
	if t.strict {
		var clean bool
		if marks, clean = pattern.Look(path); !clean {
			return nil, keysource.ErrBadPath
		}
	}
	q := query{host: host, method: method, other: other, path: path}
	r := t.index.first(&q)
	if r == nil {
		return nil, ErrNoRoute
	}
	if t.strict && (marks != 0 || t.cased) && len(t.routes) > 1 {
		if other := t.misread(q, r, marks); other != nil {
			return nil, fmt.Errorf("%w: some apps would match this path to the route %q: send it in that route's own case, without escapes, backslashes or semicolons", gateway.ErrBadKey, other.Name)
		}
	}
	return r, nil
}

// misread returns a route with keys that an app may find for a request of r, nil if there is none.
func (t *Table) misread(q query, r *Route, marks pattern.Marks) *Route {
	if marks&^pattern.Upper == 0 && len(q.path) <= maxLowered {
		memory := lowered.Get().(*[maxLowered]byte)
		defer lowered.Put(memory)
		for i, c := range []byte(q.path) {
			if 'A' <= c && c <= 'Z' {
				c |= 0x20
			}
			memory[i] = c
		}
		q.path = grammar.Text(memory[:len(q.path)])
		return t.keyedBeside(&q, r)
	}
	for _, q.path = range pattern.Readings(q.path, marks, t.depth) {
		if other := t.keyedBeside(&q, r); other != nil {
			return other
		}
	}
	return nil
}

const maxLowered = 256

// lowered has memory for paths in lower case.
var lowered = sync.Pool{New: func() any { return new([maxLowered]byte) }}

// keyedBeside returns the route that takes a request in lower case, if it is another one than r
// and has keys.
func (t *Table) keyedBeside(q *query, r *Route) *Route {
	if other := t.folded.first(q); other != nil && other.Index != r.Index && len(other.Keys) > 0 {
		return other
	}
	return nil
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
	return len(r.Match.Hosts) == 0 || slices.ContainsFunc(r.Match.Hosts, func(h string) bool { return h == host || coversHost(h, host) })
}

// coversHost reports whether a host, which may be of the form *.example.com too, is
// below one of that form.
func coversHost(wild, host string) bool {
	return wild[0] == '*' && len(host) >= len(wild) && host[len(host)-len(wild)+1:] == wild[1:] && host != wild
}
