package routes

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/keysource"
	"github.com/keyway-go/keyway/internal/pattern"
	"github.com/keyway-go/keyway/internal/policy"
	"github.com/keyway-go/keyway/internal/wire/grammar"
	"github.com/keyway-go/keyway/internal/yamlfile"
)

// Parse reads what a file of routes has in it; name is for errors, see [Load].
func Parse(name string, data []byte) (*Table, error) {
	doc, err := yamlfile.Parse(name, data)
	if err != nil {
		return nil, err
	}
	list := parseRoutes(doc.Root())
	switch err := doc.Err(); {
	case err != nil:
		return nil, err
	case len(list) == 0:
		return nil, &yamlfile.Error{File: name, Text: "no routes: begin with routes:"}
	}
	t := newTable(list)
	t.digest, t.file = xxhash.Sum64(data), name
	return t, nil
}

func parseRoutes(root yamlfile.Node) (list []*Route) {
	for _, f := range root.Fields([]string{"routes"}) {
		for _, n := range f.Value.List() {
			if len(list) == MaxRoutes {
				n.Errorf("more than %d routes", MaxRoutes)
				break
			}
			p := routeParser{&Route{Line: n.Line()}, n}
			p.parse()
			checkAgainst(n, p.route, list)
			list = append(list, p.route)
		}
	}
	return list
}

type routeParser struct {
	route *Route
	node  yamlfile.Node
}

func (p *routeParser) parse() {
	fields := map[string]yamlfile.Node{}
	for _, f := range p.node.Fields([]string{
		"name", "match", "key", "chars", "prefix", "tenant", "without-key", "mode", "timeout", "max-wait", "hold", "queue", "body", "upgrade", "rate",
	}) {
		fields[f.Name] = f.Value
	}
	r := p.route
	p.name(fields["name"])
	p.match(fields["match"])
	p.keys(fields)
	with(fields["mode"], func(n yamlfile.Node, s string) {
		var err error
		if r.Mode, err = policy.ParseMode(s); err != nil {
			n.Errorf("%v", err)
		}
	})
	r.Timeout = duration(fields["timeout"], "timeout", time.Millisecond)
	r.MaxWait = duration(fields["max-wait"], "max-wait", time.Millisecond)
	if n := fields["hold"]; n.IsSet() {
		r.Hold = duration(n, "hold", 0)
		r.NoHold = r.Hold == 0
	}
	with(fields["queue"], func(n yamlfile.Node, s string) { r.QueuePerKey = number(n, s, "queue", policy.MaxQueue) })
	p.body(fields["body"])
	p.upgrades(fields["upgrade"])
	p.rate(fields["rate"])
	r.encode()
}

// with passes the text of a field on, if the file has it.
func with(n yamlfile.Node, use func(n yamlfile.Node, text string)) {
	if n.IsSet() {
		if text, ok := n.Text(); ok {
			use(n, text)
		}
	}
}

func (p *routeParser) name(n yamlfile.Node) {
	if !n.IsSet() {
		p.node.Errorf("the route has no name: give it one")
	}
	with(n, func(n yamlfile.Node, s string) {
		if p.route.Name = s; len(s) > policy.MaxRoute || strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f }) {
			n.Errorf("a name has at most %d bytes and no control characters", policy.MaxRoute)
		}
	})
}

func (p *routeParser) match(n yamlfile.Node) {
	m := &p.route.Match
	for _, f := range n.Fields([]string{"hosts", "methods", "path"}) {
		switch f.Name {
		case "hosts":
			m.Hosts = texts(f.Value, checkHost)
		case "methods":
			m.Methods = texts(f.Value, checkMethod)
		case "path":
			with(f.Value, func(n yamlfile.Node, s string) {
				path, err := pattern.Parse(s)
				if err != nil {
					n.Errorf("path %q: %v", s, err)
					return
				}
				m.Path, p.route.path, p.route.hasPath = s, path, true
			})
		}
	}
}

// keys reads where a request's key stands.
func (p *routeParser) keys(fields map[string]yamlfile.Node) {
	r := p.route
	with(fields["without-key"], func(n yamlfile.Node, s string) {
		var err error
		if r.WithoutKey, err = ParseWithoutKey(s); err != nil {
			n.Errorf("%v", err)
		}
	})
	chars := ""
	with(fields["chars"], func(n yamlfile.Node, s string) {
		if chars = s; keysource.Check(s) != nil || !fields["key"].IsSet() {
			n.Errorf("chars are the characters, in a text such as \"/;\", that keys of the route may have beyond the usual ones")
		}
	})
	for _, e := range fields["key"].List() {
		with(e, func(n yamlfile.Node, s string) { r.Keys = append(r.Keys, p.source(n, s).WithChars(chars)) })
	}
	if !fields["key"].IsSet() && !r.WithoutKey.Any && r.WithoutKey.Upstream == "" {
		p.node.Errorf("route %q has no key: say where it stands, such as key: header:X-Key, or without-key: any", r.Name)
	}
	with(fields["prefix"], func(n yamlfile.Node, s string) {
		if r.Prefix = s; keysource.Check(s) != nil || len(s) > keysource.MaxLen/2 {
			n.Errorf("a prefix has at most %d bytes of UTF-8 without control characters", keysource.MaxLen/2)
		}
	})
	with(fields["tenant"], func(n yamlfile.Node, s string) {
		if r.Tenant = append(r.Tenant, p.source(n, s).WithChars(chars)); fields["prefix"].IsSet() {
			n.Errorf("a route has a prefix or a tenant, not both")
		}
	})
}

// source reads a key source. path:NAME is a wildcard of the route's own path.
func (p *routeParser) source(n yamlfile.Node, spec string) gateway.KeySource {
	if name, ok := strings.CutPrefix(spec, "path:"); ok && !strings.HasPrefix(name, "/") {
		if names := p.route.path.Wildcards(); !slices.Contains(names, name) {
			n.Errorf("%s: the route's path %q has no wildcard {%s}", spec, p.route.Match.Path, name)
			return gateway.KeySource{}
		}
		spec = "path:" + p.route.path.Canonical(name)
	}
	s, err := gateway.ParseKeySource(spec)
	if err != nil {
		n.Errorf("%s", strings.TrimPrefix(err.Error(), "gateway: "))
	}
	return s
}

func (p *routeParser) body(n yamlfile.Node) {
	for _, f := range n.Fields([]string{"max", "buffer"}) {
		with(f.Value, func(n yamlfile.Node, s string) {
			switch {
			case f.Name == "max":
				p.route.MaxBody = size(n, s)
			case s != "true" && s != "false":
				n.Errorf("buffer is %q, want true or false", s)
			default:
				p.route.Stream = s == "false"
			}
		})
	}
}

func (p *routeParser) upgrades(n yamlfile.Node) {
	p.route.Upgrades = texts(n, func(s string) (string, error) {
		if s == "none" {
			return "", nil
		}
		return s, grammar.CheckUpgrade(s)
	})
	if slices.Contains(p.route.Upgrades, "") {
		if len(p.route.Upgrades) > 1 {
			n.Errorf("upgrade has none and others")
		}
		p.route.Upgrades = []string{}
	}
}

func (p *routeParser) rate(n yamlfile.Node) {
	r, burst := p.route, 0
	for _, f := range n.Fields([]string{"per-key", "per-route", "burst"}) {
		with(f.Value, func(n yamlfile.Node, s string) {
			switch f.Name {
			case "per-key":
				r.PerKey = rate(n, s)
			case "per-route":
				r.PerRoute = rate(n, s)
			case "burst":
				burst = number(n, s, "burst", policy.MaxBurst)
			}
		})
	}
	switch {
	case burst == 0:
	case r.PerKey == policy.Rate{}:
		n.Errorf("burst is of per-key, which is missing")
	default:
		r.PerKey.Burst = burst
	}
}

func checkAgainst(n yamlfile.Node, r *Route, before []*Route) {
	for _, b := range before {
		if b.Name == r.Name && r.Name != "" {
			n.Errorf("a second route has the name %q; the first is in line %d", r.Name, b.Line)
		}
		if b.covers(r) {
			n.Errorf("route %q can never be taken, since %q in line %d takes all of its requests: put it before that one", r.Name, b.Name, b.Line)
			return
		}
	}
}

// covers reports whether b takes all requests that r takes.
func (b *Route) covers(r *Route) bool {
	methods := len(b.Match.Methods) == 0 || len(r.Match.Methods) > 0
	for _, m := range r.Match.Methods {
		methods = methods && b.takesMethod(m)
	}
	hosts := len(b.Match.Hosts) == 0 || len(r.Match.Hosts) > 0
	for _, h := range r.Match.Hosts {
		hosts = hosts && b.takesHost(h)
	}
	return methods && hosts && (!b.hasPath || r.hasPath && b.path.Covers(&r.path))
}

// ParseWithoutKey reads reject, any, or the URL of a plain upstream such as
// http://10.0.0.9:8080.
func ParseWithoutKey(s string) (WithoutKey, error) {
	switch host, isURL := strings.CutPrefix(s, "http://"); {
	case s == "reject":
		return WithoutKey{stated: true}, nil
	case s == "any":
		return WithoutKey{Any: true, stated: true}, nil
	case isURL:
		addr, err := hostPort(strings.TrimSuffix(host, "/"))
		if err == nil {
			return WithoutKey{Upstream: addr, stated: true}, nil
		}
	}
	return WithoutKey{}, errors.New("without-key is none of reject, any and http://host:port")
}
