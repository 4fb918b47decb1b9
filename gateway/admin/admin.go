// Package admin is for programs that are members of a cluster. It serves the cluster's operators,
// with the page /, JSON and metrics, and carries out their orders. Its answers are those of package
// internal/status; openapi.yaml describes it.
//
// admin.go has the pages and their access rules, slow.go keeps slow readers from harm, pages.go and
// debug.go answer. live.go sends the content of the page /, and live_traffic.go and live_words.go
// compose it.
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
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/access"
	"github.com/keyway-go/keyway/gateway/internal/live"
	"github.com/keyway-go/keyway/internal/keysource"
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

	// Operator asks workers about themselves and about keys. Default: the pages /workers, /moves,
	// /hot, /loads, /locks and /explain do not exist, the page / lists workers without their
	// status, and no worker can be drained by its name.
	Operator Operator

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

// Operator is the operator of a router or a client.
type Operator interface {
	Workers(context.Context) []status.WorkerRow
	Loads(context.Context) []status.LoadRow
	Locks(ctx context.Context, after string) status.LockPage
	Explain(ctx context.Context, key string) (*status.Explanation, error)
	ExplainRequest(context.Context, *http.Request) (*status.Explanation, error)
	Unlock(ctx context.Context, key, by string) ([]status.LockRow, error)
	Release(ctx context.Context, key, by string) error
	Drain(ctx context.Context, worker string) error
	Undrain(ctx context.Context, worker string) error
	Place(ctx context.Context, partition int, worker string) error
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
	return inTime(mux)
}

// maxScrapes is how many requests for metrics are answered at once, and maxAsking how
// many for what workers have to be asked for; others get 503.
const maxScrapes, maxAsking = 8, 16

type admin struct {
	cfg       Config
	asking    chan struct{} // has an element for each request that asks workers
	recording sync.Mutex    // held while a profile is recorded and sent
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
	metrics := promhttp.HandlerOpts{EnableOpenMetrics: true, ErrorHandling: promhttp.ContinueOnError}
	return []page{
		{"GET /{$}", serveLivePage(), true, readers},
		{"GET /events", live.New((&collector{cfg: cfg}).collect), true, readers},
		{"GET /healthz", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }), true, probes},
		{"GET /readyz", http.HandlerFunc(a.ready), true, probes},
		{"GET /members", answering("", a.members), true, readers},
		{"GET /ring", answering("", a.ring), true, readers},
		{"GET /explain", limited(a.asking, answering("", a.explain)), asks, readers},
		{"GET /workers", limited(a.asking, answering("", a.workers)), asks, readers},
		{"GET /moves", limited(a.asking, answering("", a.moves)), asks, readers},
		{"GET /hot", limited(a.asking, answering("", a.hot)), asks, readers},
		{"GET /loads", limited(a.asking, answering("", a.loads)), asks, readers},
		{"GET /locks", limited(a.asking, answering("", a.locks)), asks, readers},
		{"GET /routes", answering("", func(*http.Request) (any, error) { return cfg.Routes(), nil }), cfg.Routes != nil, readers},
		{"POST /drain", answering("drained", a.drain), asks || cfg.Drain != nil, writers},
		{"POST /unlock", answering("unlocked", ofKey(a.unlock)), asks, writers},
		{"POST /release", answering("released", ofKey(a.release)), asks, writers},
		{"POST /undrain", answering("undrained", a.undrain), asks || cfg.Undrain != nil, writers},
		{"POST /place", answering("placed", a.place), asks, writers},
		{"POST /unplace", answering("unplaced", a.place), asks, writers},
		{"GET /metrics", limited(make(chan struct{}, maxScrapes), promhttp.HandlerFor(cfg.Metrics, metrics)), cfg.Metrics != nil, probes},
		{"GET /debug/pprof/{profile...}", http.HandlerFunc(a.profile), true, workers},
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

func (a *admin) ready(w http.ResponseWriter, _ *http.Request) {
	if a.cfg.Ready != nil {
		if err := a.cfg.Ready(); err != nil {
			http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
	}
	fmt.Fprintln(w, "ready")
}

// refusal is an error of a request, and the status of its answer.
type refusal struct {
	status int
	error
}

func badRequest(format string, args ...any) error {
	return refusal{http.StatusBadRequest, fmt.Errorf(format, args...)}
}

// answering returns the handler of a page. f returns its content; for nil the page says done.
func answering(done string, f func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r)
		refused, isRefused := err.(refusal)
		switch {
		case isRefused:
			http.Error(w, err.Error(), refused.status)
		case err != nil:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "not "+done+": "+err.Error(), http.StatusServiceUnavailable)
		case v == nil:
			fmt.Fprintln(w, done)
		default:
			writeJSON(w, v)
		}
	}
}

// orNotFound has err answered with 404 if it wraps missing.
func orNotFound(err, missing error) error {
	if errors.Is(err, missing) {
		return refusal{http.StatusNotFound, err}
	}
	return err
}

func (a *admin) drain(r *http.Request) (any, error) {
	return nil, a.order(r, a.cfg.Drain, func(name string) error { return a.cfg.Operator.Drain(r.Context(), name) })
}

func (a *admin) undrain(r *http.Request) (any, error) {
	var own func(context.Context) error
	if a.cfg.Undrain != nil {
		own = func(context.Context) error { return a.cfg.Undrain() }
	}
	return nil, a.order(r, own, func(name string) error { return a.cfg.Operator.Undrain(r.Context(), name) })
}

// order has the worker that a request names do something: by its name, or this process's
// own, if there is one.
func (a *admin) order(r *http.Request, own func(context.Context) error, named func(name string) error) error {
	switch name := r.URL.Query().Get("worker"); {
	case name == "" && own == nil:
		return badRequest("say which worker (worker=NAME); /workers lists them")
	case name == "":
		return own(r.Context())
	case a.cfg.Operator == nil:
		return badRequest("this process knows no worker but its own: leave worker= out")
	default:
		return orNotFound(named(name), status.ErrNoWorker)
	}
}

// place answers /place and, without a worker, /unplace.
func (a *admin) place(r *http.Request) (any, error) {
	number := r.URL.Query().Get("partition")
	partition, err := strconv.Atoi(number)
	worker, unplace := r.URL.Query().Get("worker"), r.URL.Path == "/unplace"
	switch {
	case err != nil:
		return nil, badRequest("partition is %q, want a number; explain KEY (/explain?key=KEY) has that of a key", number)
	case unplace == (worker != ""):
		return nil, badRequest("/place needs a worker (worker=NAME), and /unplace none")
	}
	if err := a.cfg.Operator.Place(r.Context(), partition, worker); err != nil {
		return nil, refusal{http.StatusConflict, err}
	}
	return nil, nil
}

func (a *admin) explain(r *http.Request) (any, error) {
	e, err := a.explanation(r)
	if err != nil {
		return nil, badRequest("%w (use /explain?key=KEY, or /explain?url=URL with method=, header=NAME: VALUE, body= and client=ADDRESS)", err)
	}
	return e, nil
}

func (a *admin) explanation(r *http.Request) (*status.Explanation, error) {
	if r.URL.Query().Has("key") {
		key, err := keyFromQuery(r, "key")
		if err != nil {
			return nil, err
		}
		return a.cfg.Operator.Explain(r.Context(), key)
	}
	asked, err := explainedRequest(r)
	if err != nil {
		return nil, err
	}
	return a.cfg.Operator.ExplainRequest(r.Context(), asked)
}

// explainedRequest returns the request that the parameters of r describe.
func explainedRequest(r *http.Request) (*http.Request, error) {
	q := r.URL.Query()
	if q.Get("url") == "" {
		return nil, errors.New("gateway: there is neither a key nor a url to explain")
	}
	asked, err := keysource.Describe(cmp.Or(q.Get("method"), http.MethodGet), q.Get("url"), q.Get("body"), q["header"])
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	asked.RemoteAddr = net.JoinHostPort(cmp.Or(q.Get("client"), "127.0.0.1"), "0")
	return asked, nil
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

// ofKey has f answer a request for the key in its parameter.
func ofKey(f func(r *http.Request, key string) (any, error)) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		key, err := keyFromQuery(r, "key")
		if err != nil {
			return nil, badRequest("%w (use %s?key=KEY)", err, r.URL.Path)
		}
		return f(r, key)
	}
}

func digestText(d uint64) string { return fmt.Sprintf("%016x", d) }

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // the client may have left
}
