// Package admin is for programs that are members of a cluster. It serves the cluster's operators,
// with the page /, JSON and metrics, and carries out their orders. Its answers are those of package
// internal/status; openapi.yaml describes it.
//
// admin.go has the pages and their access rules, pages.go and debug.go answer. live.go sends the
// content of the page /, and live_traffic.go and live_words.go compose it.
package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/access"
	"github.com/keyway-go/keyway/gateway/internal/live"
	"github.com/keyway-go/keyway/internal/status"
)

// Config configures the handler of [New]. Members is required.
type Config struct {
	Members gateway.Members

	// Ready returns nil while the process can do its work, like the methods of that name of routers
	// and workers. Default: always ready.
	Ready func() error

	// Store returns why this process cannot use the store, nil if it can. Default: it uses none, or
	// is a worker, whose status reports the store.
	Store func() error

	// Lookup returns where requests for a key go, as a router's Lookup does.
	// Default: the owner by the ring.
	Lookup func(key string) (gateway.Route, error)

	// Operator asks workers about themselves and about keys. Default: the pages /workers, /moves,
	// /hot, /loads, /locks and /explain do not exist, the page / lists workers without their
	// status, and no worker can be drained by its name.
	Operator status.Operator

	// Drain makes this process's worker leave the ring, like worker.Worker.LeaveRing. It returns
	// nil once nothing of its keys runs here, or when its context ends an error that says what
	// still does. It may be called at any time and more than once. Undrain makes the worker return,
	// like JoinRing. Set both or neither. Default: there is no worker.
	Drain   func(context.Context) error
	Undrain func() error

	// Token, if set, is required in the header Authorization, after Bearer, of requests that change
	// something. Default: they must come from this machine, over a loopback address or a Unix
	// socket.
	Token string

	// Hosts are names of this process, in addition to localhost and its addresses. A request for
	// another host is refused, unless it has Token or is for /healthz, /readyz or /metrics.
	// Default: none.
	Hosts []string

	// Routes returns the routes that a router has in force. Default: there is no page /routes.
	Routes func() status.RoutesStatus

	// Metrics are what GET /metrics returns to Prometheus, such as a registry of the process's
	// parts. While the page / has viewers, they are gathered once a second. Default: there is no
	// page /metrics, and no rates at /.
	Metrics prometheus.Gatherer
}

// New returns the handler of a process's admin address. openapi.yaml, which it serves at
// /openapi.yaml, describes its pages; pages without content in this process do not exist. /events
// lasts until its client leaves or the server is closed; http.Server.Shutdown would wait for that.
// The address is not for the public: it shows addresses and ends work. It refuses POST requests and
// requests for profiles that a web page of another site makes a browser send.
func New(cfg Config) http.Handler {
	a := &admin{cfg: cfg, asking: make(chan struct{}, maxAsking)}
	mux := http.NewServeMux()
	for _, p := range a.pages() {
		if p.there {
			mux.Handle(p.pattern, a.guarded(p))
		}
	}
	return mux
}

// maxScrapes is how many requests for metrics are answered at once, and maxAsking how
// many for what workers have to be asked for; others get 503.
const maxScrapes, maxAsking = 8, 16

type admin struct {
	cfg    Config
	asking chan struct{} // has an element for each request that asks workers
}

type page struct {
	pattern string
	handler http.Handler
	there   bool
	who     audience
}

// audience is the group of clients that a page is for.
type audience uint8

const (
	readers audience = iota // ask by a host that is known as this process
	workers                 // likewise, and from no page of another site: it costs work
	writers                 // have the token, or are on this machine: it changes something
	probes                  // ask by any host: it reveals and changes nothing
)

func (a *admin) pages() []page {
	cfg := &a.cfg
	asks := cfg.Operator != nil
	metrics := promhttp.HandlerOpts{EnableOpenMetrics: true, ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: maxScrapes}
	return []page{
		{"GET /{$}", serveLivePage(), true, readers},
		{"GET /events", live.New(func() live.Gather { return (&collector{cfg: cfg}).collect }), true, readers},
		{"GET /healthz", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }), true, probes},
		{"GET /readyz", http.HandlerFunc(a.ready), true, probes},
		{"GET /members", http.HandlerFunc(a.members), true, readers},
		{"GET /ring", http.HandlerFunc(a.ring), true, readers},
		{"GET /lookup", http.HandlerFunc(a.lookup), true, readers},
		{"GET /explain", a.limitAsking(a.explain), asks, readers},
		{"GET /workers", a.limitAsking(a.workers), asks, readers},
		{"GET /moves", a.limitAsking(a.moves), asks, readers},
		{"GET /hot", a.limitAsking(a.hot), asks, readers},
		{"GET /loads", a.limitAsking(a.loads), asks, readers},
		{"GET /locks", a.limitAsking(a.locks), asks, readers},
		{"GET /routes", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, cfg.Routes()) }), cfg.Routes != nil, readers},
		{"POST /drain", http.HandlerFunc(a.drain), asks || cfg.Drain != nil, writers},
		{"POST /unlock", http.HandlerFunc(a.unlock), asks, writers},
		{"POST /release", http.HandlerFunc(a.release), asks, writers},
		{"POST /undrain", http.HandlerFunc(a.undrain), asks || cfg.Undrain != nil, writers},
		{"POST /place", http.HandlerFunc(a.place), asks, writers},
		{"POST /unplace", http.HandlerFunc(a.place), asks, writers},
		{"GET /metrics", promhttp.HandlerFor(cfg.Metrics, metrics), cfg.Metrics != nil, probes},
		{"GET /debug/pprof/{profile...}", http.HandlerFunc(serveProfile), true, workers},
		{"GET /openapi.yaml", http.HandlerFunc(serveOpenAPI), true, readers},
	}
}

// guarded returns the handler of a page, which refuses requests that may not see it.
func (a *admin) guarded(p page) http.Handler {
	rules := access.Rules{Token: a.cfg.Token, Hosts: a.cfg.Hosts}
	verdict := func(r *http.Request) access.Verdict { return rules.OfReading(r, p.who == workers) }
	switch p.who {
	case probes:
		return p.handler
	case writers:
		verdict = rules.Of
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch verdict(r) {
		case access.OtherSite:
			http.Error(w, "a page of another site has sent this", http.StatusForbidden)
		case access.OtherHost:
			http.Error(w, access.AskByAddress, http.StatusForbidden)
		case access.NotHere:
			http.Error(w, "without --admin-token only this machine may send this request", http.StatusForbidden)
		case access.NoToken:
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "the request needs the header Authorization: Bearer with the token of --admin-token", http.StatusUnauthorized)
		default:
			p.handler.ServeHTTP(w, r)
		}
	})
}

// limitAsking limits a handler that asks workers to a number of concurrent requests.
func (a *admin) limitAsking(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case a.asking <- struct{}{}:
			defer func() { <-a.asking }()
			h(w, r)
		default:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many requests at once, try again", http.StatusServiceUnavailable)
		}
	})
}

func (a *admin) ready(w http.ResponseWriter, _ *http.Request) {
	if a.cfg.Ready != nil {
		if err := a.cfg.Ready(); err != nil {
			http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
	}
	fmt.Fprintln(w, "ready")
}

func (a *admin) drain(w http.ResponseWriter, r *http.Request) {
	a.order(w, r, "drained", a.cfg.Drain, func(name string) error { return a.cfg.Operator.Drain(r.Context(), name) })
}

func (a *admin) undrain(w http.ResponseWriter, r *http.Request) {
	var own func(context.Context) error
	if a.cfg.Undrain != nil {
		own = func(context.Context) error { return a.cfg.Undrain() }
	}
	a.order(w, r, "undrained", own, func(name string) error { return a.cfg.Operator.Undrain(r.Context(), name) })
}

// place answers /place and, without a worker, /unplace.
func (a *admin) place(w http.ResponseWriter, r *http.Request) {
	number := r.URL.Query().Get("partition")
	partition, err := strconv.Atoi(number)
	worker, unplace := r.URL.Query().Get("worker"), r.URL.Path == "/unplace"
	switch {
	case err != nil:
		http.Error(w, fmt.Sprintf("partition is %q, want a number; explain KEY (/explain?key=KEY) has that of a key", number), http.StatusBadRequest)
		return
	case unplace == (worker != ""):
		http.Error(w, "/place needs a worker (worker=NAME), and /unplace none", http.StatusBadRequest)
		return
	}
	if err := a.cfg.Operator.Place(r.Context(), partition, worker); err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	fmt.Fprintln(w, r.URL.Path[1:]+"d")
}

// order has the worker that a request names do something: by its name, or this process's
// own, if there is one.
func (a *admin) order(w http.ResponseWriter, r *http.Request, done string, own func(context.Context) error, named func(string) error) {
	var err error
	switch name := r.URL.Query().Get("worker"); {
	case name == "" && own == nil:
		http.Error(w, "say which worker (worker=NAME); /workers lists them", http.StatusBadRequest)
		return
	case name == "":
		err = own(r.Context())
	case a.cfg.Operator == nil:
		http.Error(w, "this process knows no worker but its own: leave worker= out", http.StatusBadRequest)
		return
	default:
		err = named(name)
	}
	switch {
	case errors.Is(err, status.ErrNoWorker):
		http.Error(w, err.Error(), http.StatusNotFound)
	case err != nil:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "not "+done+": "+err.Error(), http.StatusServiceUnavailable)
	default:
		fmt.Fprintln(w, done)
	}
}

func (a *admin) explain(w http.ResponseWriter, r *http.Request) {
	var e *status.Explanation
	var err error
	if r.URL.Query().Has("key") {
		var key string
		if key, err = keyFromQuery(r, "key"); err == nil {
			e, err = a.cfg.Operator.Explain(r.Context(), key)
		}
	} else {
		var asked *http.Request
		if asked, err = explainedRequest(r); err == nil {
			e, err = a.cfg.Operator.ExplainRequest(r.Context(), asked)
		}
	}
	if err != nil {
		http.Error(w, err.Error()+" (use /explain?key=KEY, or /explain?url=URL with method=, header=NAME: VALUE, body= and client=ADDRESS)", http.StatusBadRequest)
		return
	}
	writeJSON(w, e)
}

// explainedRequest returns the request that the parameters of r describe.
func explainedRequest(r *http.Request) (*http.Request, error) {
	q := r.URL.Query()
	target := q.Get("url")
	if target == "" {
		return nil, errors.New("gateway: there is neither a key nor a url to explain")
	}
	asked, err := http.NewRequestWithContext(r.Context(), cmp.Or(q.Get("method"), http.MethodGet), target, strings.NewReader(q.Get("body")))
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	for _, field := range q["header"] {
		name, value, ok := strings.Cut(field, ":")
		if !ok {
			return nil, fmt.Errorf("gateway: %q is not NAME: VALUE", field)
		}
		asked.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	asked.RemoteAddr = net.JoinHostPort(cmp.Or(q.Get("client"), "127.0.0.1"), "0")
	return asked, nil
}

type lookupJSON struct {
	Key       string `json:"key"`
	Partition int    `json:"partition"`
	Owner     string `json:"owner"`   // empty for none
	Address   string `json:"address"` // empty for none
	Epoch     int64  `json:"epoch,omitempty"`
}

func (a *admin) lookup(w http.ResponseWriter, r *http.Request) {
	key, err := keyFromQuery(r, "key")
	if err != nil {
		http.Error(w, err.Error()+" (use /lookup?key=KEY)", http.StatusBadRequest)
		return
	}
	lookup := a.cfg.Lookup
	if lookup == nil {
		lookup = a.byRing
	}
	route, err := lookup(key)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeJSON(w, lookupJSON{key, route.Partition, route.Owner.Name, route.Owner.Addr, route.Epoch})
}

func (a *admin) byRing(key string) (gateway.Route, error) {
	p := a.cfg.Members.Settings().Ring.Partition(key)
	m, _ := a.cfg.Members.View().Owner(p)
	return gateway.Route{Partition: p, Owner: m}, nil
}

// keyFromQuery returns the key in the parameter of that name. It refuses what apps could read in
// several ways, as for requests.
func keyFromQuery(r *http.Request, name string) (string, error) {
	source, err := gateway.ParseKeySource("query:" + name)
	if err != nil {
		return "", err
	}
	return gateway.KeySources{source}.Extract(r)
}

func digestText(d uint64) string { return fmt.Sprintf("%016x", d) }

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // the client may have left
}
