package router

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/problem"
	"github.com/keyway-go/keyway/internal/keysource"
	"github.com/keyway-go/keyway/internal/policy"
	"github.com/keyway-go/keyway/internal/routes"
	"github.com/keyway-go/keyway/internal/status"
	"github.com/keyway-go/keyway/internal/wire/hop1"
)

// table is the routes that are in force.
type table struct {
	*routes.Table
	routes []*route  // in the table's order
	since  time.Time // when it came into force
}

// route is a route with the router's state for it. It does not change; bucket, upstream and traffic
// are safe for concurrent use and are carried over to the next table.
type route struct {
	*routes.Route
	rules     fields.Rules
	hold      time.Duration
	maxBody   int64
	smallBody int64          // how long a body may be that is read with the first attempt
	bucket    *routes.Bucket // nil if the requests are not bounded
	upstream  *hop1.Pool     // of requests without a key; nil if they go to none
	traffic   *traffic

	policy, unkeyed []byte // what the router asks of workers, with a key and without; nil for nothing
}

// newTable makes the router's table of t. From the table before, nil for none, it takes over the
// routes' recent request counts and connections.
func (rt *Router) newTable(t *routes.Table, before *table) (*table, error) {
	var keys gateway.KeySources // of all: what one route may read, no route passes on under a like name
	for _, r := range t.Routes() {
		keys = append(append(keys, r.Keys...), r.Tenant...)
	}
	out := &table{Table: t, since: time.Now()}
	for _, r := range t.Routes() {
		upgrades := r.Upgrades
		if upgrades == nil {
			upgrades = rt.cfg.Upgrades
		}
		rules, err := fields.NewRules(keys, upgrades)
		if err != nil {
			return nil, err
		}
		own := &route{Route: r, rules: rules, hold: r.Hold, maxBody: rt.cfg.MaxBody, traffic: rt.trafficOf(labelOf(r.Name))}
		if r.MaxBody > 0 {
			own.maxBody = min(r.MaxBody, rt.cfg.MaxBody)
		}
		if !r.Stream {
			own.smallBody = min(hop.MaxRepeatedBody, own.maxBody)
		}
		if own.hold == 0 && !r.NoHold {
			own.hold = rt.cfg.Hold
		}
		own.bucket, own.upstream = rt.shared(r, before)
		keyed := r.Policy
		keyed.Timed = rt.cfg.AccessLog != nil // how long requests wait and run
		unkeyed := policy.Policy{Mode: policy.Unkeyed, Timeout: keyed.Timeout, Timed: keyed.Timed}
		own.policy, own.unkeyed = keyed.Append(nil), unkeyed.Append(nil)
		out.routes = append(out.routes, own)
	}
	return out, nil
}

// shared returns what a route has in common with one of the table before.
func (rt *Router) shared(r *routes.Route, before *table) (b *routes.Bucket, upstream *hop1.Pool) {
	if before != nil {
		for _, old := range before.routes {
			if old.Name == r.Name && old.PerRoute == r.PerRoute {
				b = old.bucket
			}
			if old.WithoutKey.Upstream == r.WithoutKey.Upstream {
				upstream = old.upstream
			}
		}
	}
	if b == nil && r.PerRoute != (policy.Rate{}) {
		b = routes.NewBucket(r.PerRoute)
	}
	if upstream == nil && r.WithoutKey.Upstream != "" {
		upstream = &hop1.Pool{
			Conns: rt.cfg.ConnsPerWorker, Wait: rt.cfg.DialTimeout, Idle: hop.IdleTimeout / 2,
			Dial: func(ctx context.Context) (net.Conn, error) { return rt.cfg.Dial(ctx, "tcp", r.WithoutKey.Upstream) },
		}
	}
	return b, upstream
}

func (t *table) closeUnused(now *table) {
	for _, old := range t.routes {
		used := slices.ContainsFunc(now.routes, func(r *route) bool { return r.upstream == old.upstream })
		if old.upstream != nil && !used {
			old.upstream.Close()
		}
	}
}

// LoadRoutes reads a file of routes (docs/routes.md). Its error has a line for each mistake.
func LoadRoutes(file string) (*routes.Table, error) { return routes.Load(file) }

// SetRoutes replaces the table in force; requests under way keep theirs. If a request could get
// another key by t than by a table that was in force before, here or at another router, SetRoutes
// returns an error that says what differs, and changes nothing.
func (rt *Router) SetRoutes(t *routes.Table) error {
	rt.changing.Lock()
	defer rt.changing.Unlock()
	before := rt.table.Load()
	next, err := rt.newTable(t, before)
	if err != nil {
		return err
	}
	lineage := rt.lineage
	if err := lineage.Take(t); err != nil {
		return err
	}
	m, compares := rt.cfg.Members.(interface{ AnnounceKeySource(source string) error })
	if compares && before != nil && lineage.KeySource() != rt.lineage.KeySource() {
		if err := m.AnnounceKeySource(lineage.KeySource()); err != nil {
			return fmt.Errorf("router: the routes do not agree with those of another router: %w", err)
		}
	}
	rt.lineage = lineage
	rt.table.Store(next)
	if before != nil {
		before.closeUnused(next)
	}
	return nil
}

// Reload reads a file of routes and puts it in force, as SetRoutes does with a table.
func (rt *Router) Reload(file string) error {
	t, err := routes.Load(file)
	if err == nil {
		err = rt.SetRoutes(t)
	}
	rt.changing.Lock()
	defer rt.changing.Unlock()
	rt.unloaded = err
	return err
}

// RoutesStatus returns the routes in force, and why the file that Reload read last is not.
func (rt *Router) RoutesStatus() status.RoutesStatus {
	rt.changing.Lock()
	defer rt.changing.Unlock()
	t := rt.table.Load()
	s := status.RoutesStatus{File: t.File(), Digest: fmt.Sprintf("%016x", t.Digest()), Loaded: t.since}
	if rt.unloaded != nil {
		s.Error = strings.ReplaceAll(rt.unloaded.Error(), "\n", "; ")
	}
	for _, r := range t.routes {
		s.Names = append(s.Names, r.Name)
	}
	return s
}

// Routes returns the table that is in force.
func (rt *Router) Routes() *routes.Table { return rt.table.Load().Table }

// KeySource returns the part of the routes that routers of a cluster compare, see [ring.Settings].
// It changes with SetRoutes.
func (rt *Router) KeySource() string {
	rt.changing.Lock()
	defer rt.changing.Unlock()
	if t := rt.table.Load(); t.OfFlags() {
		return t.Table.KeySource()
	}
	return rt.lineage.KeySource()
}

// decision is what becomes of a request: it goes to the owner of its key, or, without
// one, to any worker, or to the route's upstream.
type decision struct {
	route     *route
	key       string
	partition int // of the key; 0 for none
	anyWorker bool
	upstream  bool
}

// decide returns what becomes of a request. Its error wraps [routes.ErrNoRoute],
// [gateway.ErrNoKey], [gateway.ErrBadKey] or [send.ErrClientBody]. For memory see
// [routes.Route.Key].
func (rt *Router) decide(method string, req keysource.Keyed, memory *[]byte) (decision, error) {
	t := rt.table.Load()
	r, preflight, err := t.Find(method, req)
	if err != nil {
		return decision{}, err
	}
	d := decision{route: t.routes[r.Index]}
	d.key, err = r.Key(req, memory)
	switch {
	case err == nil:
		d.partition = rt.workers.Ring.Partition(d.key)
	case errors.Is(err, gateway.ErrNoKey):
		switch w := r.WithoutKey; {
		case w.Upstream != "":
			d.upstream, err = true, nil
		case w.Any, preflight && w.Preflights():
			d.anyWorker, err = true, nil
		}
	}
	return d, err
}

func (d *decision) policy() []byte {
	if d.anyWorker {
		return d.route.unkeyed
	}
	return d.route.policy
}

// admit counts a request to its route, at that time since the router's start or, if that is
// long past because the goroutine has not run since, at the present one. Its error
// is a *rateError.
func (d *decision) admit(rt *Router, now time.Duration) error {
	if d.route.bucket == nil {
		return nil
	}
	for {
		wait := d.route.bucket.Take(now)
		if wait <= 0 {
			return nil
		}
		late := rt.now() - now
		if late < wait {
			return &rateError{d.route.Name, wait - late}
		}
		now += late
	}
}

// problemOf returns the answer to a request for path with err of decide. r is its route, nil for none.
func problemOf(err error, r *route, path string) problem.Problem {
	var p problem.Problem
	switch {
	case errors.Is(err, routes.ErrNoRoute):
		p = problem.Of(problem.NoRoute)
	case r == nil:
		return problem.OfKey(err, nil)
	default:
		p = problem.OfKey(err, r.Keys)
	}
	if p.Kind != problem.BadKey && (path == lockPath || strings.HasPrefix(path, lockPath+"/")) {
		return p.With("the lock service has another address, that of --locks")
	}
	return p
}

// lockPath is where the resources of package lockservice are, at an address of its own.
const lockPath = "/v1/locks"

// rateError says that a route has had too many requests lately.
type rateError struct {
	route string
	after time.Duration // until another one may come
}

func (e *rateError) Error() string {
	return fmt.Sprintf("router: too many requests of the route %q, try again", e.route)
}
