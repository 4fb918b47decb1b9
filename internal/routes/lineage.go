package routes

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/policy"
	"github.com/keyway-go/keyway/ring"
)

// formOf returns what decides which requests the route takes, which keys they get, and
// whether keys are held: two routers that differ in it could give one request two keys.
// Limits and times are no part of it.
func formOf(r *Route) string {
	hosts, methods := slices.Sorted(slices.Values(r.Match.Hosts)), slices.Sorted(slices.Values(r.Match.Methods))
	path, held := "", "held"
	if r.hasPath {
		path = r.path.Canonical("")
	}
	if r.Policy.Mode == policy.Affinity {
		held = "not held"
	}
	return fmt.Sprintf("%q %q %q %q %q %q %q %q", hosts, methods, path, []gateway.KeySource(r.Keys), r.Prefix, r.Tenant.String(), r.WithoutKey.kind(), held)
}

// Lineage is the sequence of routes in force during which no request got another key: each table
// was the beginning of the next one, or the reverse. The zero Lineage takes any table. It is not
// for concurrent use.
type Lineage struct{ routes []*Route }

// Take takes t into the lineage. If a request could get another key by t than by a
// table before, the error says which route is to blame, and the lineage stays.
func (l *Lineage) Take(t *Table) error {
	for i := range min(len(l.routes), len(t.routes)) {
		if l.routes[i].form != t.routes[i].form {
			return fmt.Errorf("routes: route %d, %q, differs from the one that was in force there, %q, in what it matches, in its key, or in whether the key is held: "+
				"a request could have two keys at once. Put new routes after all others, or stop all routers and start them with this file", i+1, t.routes[i].Name, l.routes[i].Name)
		}
	}
	if len(t.routes) > len(l.routes) {
		l.routes = append(slices.Clip(l.routes), t.routes[len(l.routes):]...)
	}
	return nil
}

// KeySource returns what routers compare, see [ring.Settings]: only those may be of one
// cluster whose lineages are equal, or one the beginning of the other.
func (l *Lineage) KeySource() string {
	digests := make([]string, len(l.routes))
	var chain uint64
	for i, r := range l.routes {
		chain = xxhash.Sum64String(strconv.FormatUint(chain, 16) + " " + r.form)
		digests[i] = fmt.Sprintf("%012x", chain>>16)
	}
	return ring.RoutesKeySource(digests)
}

// OfFlags reports whether the table was made by [ForKeys].
func (t *Table) OfFlags() bool { return t.keys != nil }

// KeySource returns what routers compare that begin with t. For a table of [ForKeys] it
// is the text of its sources.
func (t *Table) KeySource() string {
	if t.keys != nil {
		return strings.TrimSuffix(t.keys.String()+" without-key:"+t.routes[0].WithoutKey.kind(), " without-key:reject")
	}
	var l Lineage
	_ = l.Take(t) // the first table always fits
	return l.KeySource()
}

// kind is what routers compare of w: requests without a key may go to another upstream.
func (w WithoutKey) kind() string {
	if w.Upstream != "" {
		return "upstream"
	}
	return w.String()
}
