package routes

import (
	"net/url"
	"strings"
)

// index finds the first route for a request without examining all of them: by the request's host,
// and by the first segments of its path. The zero index is empty.
type index struct {
	any   node // the routes for all hosts
	hosts node // next has the routes for each host; for a name with a dot before it, those for all hosts below
	below bool // there are some of the latter
}

// node has the routes whose paths begin with the same literal segments, and behind it
// those whose paths begin with more than these.
type node struct {
	routes []*Route         // in their order
	next   map[string]*node // by the next segment, decoded
}

// query is a request whose route is looked for.
type query struct {
	host, method, other string // other is a second method of which one is enough
	path                string
}

// add adds a route that stands behind all others in the table.
func (x *index) add(r *Route) {
	literals := r.path.Literals()
	if len(r.Match.Hosts) == 0 {
		x.any.add(r, literals)
		return
	}
	for _, h := range r.Match.Hosts {
		below, wild := strings.CutPrefix(h, "*")
		x.below = x.below || wild
		x.hosts.add(r, append([]string{below}, literals...))
	}
}

func (n *node) add(r *Route, literals []string) {
	for _, segment := range literals {
		if n.next == nil {
			n.next = make(map[string]*node)
		}
		if n.next[segment] == nil {
			n.next[segment] = new(node)
		}
		n = n.next[segment]
	}
	n.routes = append(n.routes, r)
}

// first returns the first route that takes the request, nil if there is none.
func (x *index) first(q *query) *Route {
	best := x.any.first(q, nil)
	if !strings.HasPrefix(q.host, ".") {
		best = x.hosts.next[q.host].first(q, best)
	}
	if x.below {
		for i := 1; i < len(q.host); i++ {
			if q.host[i] == '.' {
				best = x.hosts.next[q.host[i:]].first(q, best)
			}
		}
	}
	return best
}

// first returns the first route at or below n that takes the request, if it stands before best in
// the table, or else best, which may be nil. n may be nil.
func (n *node) first(q *query, best *Route) *Route {
	if n == nil {
		return best
	}
	rest, slash := strings.CutPrefix(q.path, "/")
	for depth := 0; ; depth++ {
		for _, r := range n.routes {
			if best != nil && r.Index >= best.Index {
				break
			}
			if (r.takesMethod(q.method) || q.other != q.method && r.takesMethod(q.other)) && (!r.hasPath || r.path.MatchBehind(depth, rest, slash)) {
				best = r
				break
			}
		}
		if n.next == nil || !slash {
			return best
		}
		segment, tail, more := strings.Cut(rest, "/")
		if n = n.next[decoded(segment)]; n == nil {
			return best
		}
		rest, slash = tail, more
	}
}

// decoded returns a segment of a path in the form of patterns; "" if no pattern can have it.
func decoded(segment string) string {
	text, _ := url.PathUnescape(segment) // "" with an error
	return text
}
