package routes

import (
	"errors"
	"fmt"
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
	for _, n := range fieldsOf(root, "routes")["routes"].List() {
		if len(list) == MaxRoutes {
			n.Errorf("more than %d routes", MaxRoutes)
			break
		}
		r := parseRoute(n)
		checkAgainst(n, r, list)
		list = append(list, r)
	}
	return list
}

func parseRoute(n yamlfile.Node) *Route {
	r := &Route{Line: n.Line()}
	fields := fieldsOf(n, "name", "match", "key", "chars", "prefix", "tenant", "without-key", "mode", "timeout", "max-wait", "hold", "queue", "body", "upgrade", "rate")
	if !fields["name"].IsSet() {
		n.Errorf("the route has no name: give it one")
	}
	set(fields["name"], &r.Name, checkName)
	r.parseMatch(fields["match"])
	r.parseKeys(n, fields)
	set(fields["mode"], &r.Policy.Mode, policy.ParseMode)
	set(fields["timeout"], &r.Policy.Timeout, duration("timeout", time.Millisecond))
	set(fields["max-wait"], &r.Policy.MaxWait, duration("max-wait", time.Millisecond))
	set(fields["hold"], &r.Hold, duration("hold", 0))
	r.NoHold = fields["hold"].IsSet() && r.Hold == 0
	set(fields["queue"], &r.Policy.QueuePerKey, number("queue", policy.MaxQueue))
	body := fieldsOf(fields["body"], "max", "buffer")
	set(body["max"], &r.MaxBody, size)
	set(body["buffer"], &r.Stream, isUnbuffered)
	r.parseUpgrades(fields["upgrade"])
	r.parseRate(fields["rate"])
	return r
}

// set sets value to what read makes of a field's text, and reports whether it did: if the file has
// the field, and no mistake in it.
func set[T any](n yamlfile.Node, value *T, read func(text string) (T, error)) bool {
	if !n.IsSet() {
		return false
	}
	text, ok := n.Text()
	if !ok {
		return false
	}
	v, err := read(text)
	if err != nil {
		n.Errorf("%v", err)
		return false
	}
	*value = v
	return true
}

func (r *Route) parseMatch(n yamlfile.Node) {
	m, fields := &r.Match, fieldsOf(n, "hosts", "methods", "path")
	m.Hosts = list(fields["hosts"], checkHost)
	m.Methods = list(fields["methods"], checkMethod)
	r.hasPath = set(fields["path"], &m.Path, func(s string) (_ string, err error) {
		if r.path, err = pattern.Parse(s); err != nil {
			return "", fmt.Errorf("path %q: %v", s, err)
		}
		return s, nil
	})
}

// parseKeys reads where a request's key stands.
func (r *Route) parseKeys(n yamlfile.Node, fields map[string]yamlfile.Node) {
	set(fields["without-key"], &r.WithoutKey, ParseWithoutKey)
	chars := ""
	set(fields["chars"], &chars, func(s string) (string, error) {
		if keysource.Check(s) != nil || !fields["key"].IsSet() {
			return s, errors.New("chars are the characters, in a text such as \"/;\", that keys of the route may have beyond the usual ones")
		}
		return s, nil
	})
	source := func(spec string) (gateway.KeySource, error) {
		s, err := r.source(spec)
		return s.WithChars(chars), err
	}
	r.Keys = list(fields["key"], source)
	if !fields["key"].IsSet() && !r.WithoutKey.Any && r.WithoutKey.Upstream == "" {
		n.Errorf("route %q has no key: say where it stands, such as key: header:X-Key, or without-key: any", r.Name)
	}
	set(fields["prefix"], &r.Prefix, func(s string) (string, error) {
		if keysource.Check(s) != nil || len(s) > keysource.MaxLen/2 {
			return s, fmt.Errorf("a prefix has at most %d bytes of UTF-8 without control characters", keysource.MaxLen/2)
		}
		return s, nil
	})
	var tenant gateway.KeySource
	if set(fields["tenant"], &tenant, source) {
		r.Tenant = gateway.KeySources{tenant}
	}
	if fields["tenant"].IsSet() && fields["prefix"].IsSet() {
		fields["tenant"].Errorf("a route has a prefix or a tenant, not both")
	}
}

// source reads a key source. path:NAME is a wildcard of the route's own path.
func (r *Route) source(spec string) (gateway.KeySource, error) {
	if name, ok := strings.CutPrefix(spec, "path:"); ok && !strings.HasPrefix(name, "/") {
		if names := r.path.Wildcards(); !slices.Contains(names, name) {
			return gateway.KeySource{}, fmt.Errorf("%s: the route's path %q has no wildcard {%s}", spec, r.Match.Path, name)
		}
		spec = "path:" + r.path.Canonical(name)
	}
	s, err := gateway.ParseKeySource(spec)
	if err != nil {
		err = errors.New(strings.TrimPrefix(err.Error(), "gateway: "))
	}
	return s, err
}

func (r *Route) parseUpgrades(n yamlfile.Node) {
	r.Upgrades = list(n, func(s string) (string, error) {
		if s == "none" {
			return "", nil
		}
		return s, grammar.CheckUpgrade(s)
	})
	if slices.Contains(r.Upgrades, "") {
		if len(r.Upgrades) > 1 {
			n.Errorf("upgrade has none and others")
		}
		r.Upgrades = []string{}
	}
}

func (r *Route) parseRate(n yamlfile.Node) {
	fields, burst := fieldsOf(n, "per-key", "per-route", "burst"), 0
	if set(fields["per-key"], &r.Policy.Rate, rate) {
		r.Policy.Route = r.Name
	}
	set(fields["per-route"], &r.PerRoute, rate)
	set(fields["burst"], &burst, number("burst", policy.MaxBurst))
	switch {
	case burst == 0:
	case r.Policy.Rate == policy.Rate{}:
		n.Errorf("burst is of per-key, which is missing")
	default:
		r.Policy.Rate.Burst = burst
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
