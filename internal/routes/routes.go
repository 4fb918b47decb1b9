// Package routes says which requests a router takes, and what becomes of each: where
// its key stands, how its key is held, and what bounds it has. docs/routes.md describes
// the file that [Load] reads.
//
// routes.go has tables and routes. match.go finds a request's route with index.go, and key.go its
// key. parse.go reads files, values.go their single values. lineage.go says whether a table may
// replace another.
package routes

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/pattern"
	"github.com/keyway-go/keyway/internal/policy"
)

// MaxRoutes is how many routes a table may have.
const MaxRoutes = 1000

// Table is a list of routes; the first that matches takes a request. It does not change. Make one
// with [Load], [Parse] or [ForKeys].
type Table struct {
	routes []*Route
	index  index
	folded index // of paths in lower case
	keyed  bool  // some route has keys
	strict bool  // some route, or some key, depends on the path
	cased  bool  // some path has upper case
	hosts  bool  // some route has some
	depth  int   // segments of the longest path
	keys   gateway.KeySources
	digest uint64
	file   string // "" for none
}

// Route says how requests that match it are treated. It does not change.
type Route struct {
	Name  string // unique in its table; "" for that of [ForKeys]
	Index int    // its place in the table, from 0
	Line  int    // where it begins in the file; 0 if it has none

	Match      Match
	Keys       gateway.KeySources // that have to agree
	Prefix     string             // of each key
	Tenant     gateway.KeySources // one source, whose value stands before the key; or none
	WithoutKey WithoutKey         // what becomes of a request without a key

	Policy   policy.Policy // what it asks of workers for requests with a key
	Hold     time.Duration // while the key has no owner; 0: the router's
	NoHold   bool          // a request whose key has no owner fails at once
	MaxBody  int64         // bytes of a request's body; 0: the router's
	Stream   bool          // bodies go to the worker as they come
	Upgrades []string      // protocols; nil: the router's
	PerRoute policy.Rate   // requests, counted by each router; zero: unbounded

	path    pattern.Pattern
	hasPath bool
	form    string // see formOf
}

// Match says which requests a route takes. An empty field matches all.
type Match struct {
	Hosts   []string // in lower case; *.example.com takes all hosts below example.com
	Methods []string // GET takes HEAD as well
	Path    string   // a pattern of [net/http.ServeMux] without method and host
}

// WithoutKey says what becomes of a request that has no key. The zero WithoutKey
// is that it is answered with 400.
type WithoutKey struct {
	Any      bool   // it runs at any worker, with no key held
	Upstream string // host:port of a plain HTTP server that gets it; "" for none

	stated bool // the file says it
}

// String returns the text that [ParseWithoutKey] reads.
func (w WithoutKey) String() string {
	switch {
	case w.Any:
		return "any"
	case w.Upstream != "":
		return "http://" + w.Upstream
	}
	return "reject"
}

// Preflights reports whether requests of CORS that ask whether another may be
// sent run at any worker if they have no key: they do unless something else was said.
func (w WithoutKey) Preflights() bool { return w.Any || !w.stated }

// ForKeys returns the table of one route, which takes all requests.
func ForKeys(keys gateway.KeySources, without WithoutKey) *Table {
	t := newTable([]*Route{{Keys: keys, WithoutKey: without}})
	if t.keys = keys; without.stated && (without.Any || without.Upstream != "") {
		t.digest = xxhash.Sum64String(without.String())
	}
	return t
}

// File returns the name of the file that the table was read from, "" for none.
func (t *Table) File() string { return t.file }

func newTable(list []*Route) *Table {
	t := &Table{routes: list}
	for i, r := range list {
		r.Index = i
		t.index.add(r)
		r.form = formOf(r)
		lower := *r
		lower.path = r.path.Fold()
		t.folded.add(&lower)
		t.keyed = t.keyed || len(r.Keys) > 0
		t.strict = t.strict || r.hasPath || slices.ContainsFunc(slices.Concat(r.Keys, r.Tenant), gateway.KeySource.IsPath)
		t.cased = t.cased || r.path.IsCased()
		t.depth = max(t.depth, r.path.Depth())
		t.hosts = t.hosts || len(r.Match.Hosts) > 0
	}
	return t
}

// Routes returns the routes in their order. They must not be changed.
func (t *Table) Routes() []*Route { return t.routes }

// Digest identifies all that the table says: two tables of one digest are the same.
func (t *Table) Digest() uint64 { return t.digest }

// Load reads a file of routes, of at most 1 MiB and [MaxRoutes] routes. Its error has
// a line for each mistake, which begins with file:line:column.
func Load(file string) (*Table, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("routes: %w", err)
	}
	return Parse(file, data)
}

// ErrNoRoute says that no route of the table takes a request.
var ErrNoRoute = errors.New("routes: no route takes the request")
