package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/keyway-go/keyway/ring"
)

// AdminConfig configures the handler of [NewAdmin]. Members is required.
type AdminConfig struct {
	Members Members

	// Ready returns nil while the process can do its work, as the methods of that
	// name of routers and workers do.
	// Default: always ready.
	Ready func() error

	// Lookup returns where requests for a key go, as a router's Lookup does.
	// Default: the owner by the ring.
	Lookup func(key string) (Route, error)

	// Drain leaves the ring, and returns nil when nothing of the process's keys runs
	// any more, or an error that says what still does when its context ends, as
	// keyway.Node.Drain does. It may be called at any time and more than once.
	// Default: the process cannot be drained by a request.
	Drain func(context.Context) error

	// Routes returns which routes a router has in force. Default: there is no page
	// /routes.
	Routes func() RoutesStatus
}

// RoutesStatus says which routes a router has in force.
type RoutesStatus struct {
	File   string    `json:"file"`            // "" if they are of flags
	Digest string    `json:"digest"`          // of what the file had in it
	Loaded time.Time `json:"loaded"`          // when they came into force
	Names  []string  `json:"routes"`          // in their order
	Error  string    `json:"error,omitempty"` // why the file, as it is now, is not in force
}

// NewAdmin returns the handler of a process's admin address:
//
//	GET /healthz         200 as long as the process answers
//	GET /readyz          200, or 503 with the reason
//	GET /ring            the members and their shares as JSON
//	GET /lookup?key=KEY  the key's partition and owner as JSON
//	POST /drain          200 once AdminConfig.Drain has returned, or 503 with what still runs
//	GET /routes          which routes a router has in force as JSON
//
// It is not for the public: it shows addresses and ends work. Web pages of other
// sites cannot have a browser send the POST request.
func NewAdmin(cfg AdminConfig) http.Handler {
	a := &admin{cfg}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", a.ready)
	mux.HandleFunc("GET /ring", a.ring)
	mux.HandleFunc("GET /lookup", a.lookup)
	if cfg.Drain != nil {
		mux.Handle("POST /drain", http.NewCrossOriginProtection().Handler(http.HandlerFunc(a.drain)))
	}
	if cfg.Routes != nil {
		mux.HandleFunc("GET /routes", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, cfg.Routes()) })
	}
	return mux
}

type admin struct{ cfg AdminConfig }

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
	if err := a.cfg.Drain(r.Context()); err != nil {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "not drained: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "drained")
}

type ringJSON struct {
	Digest     string       `json:"digest"` // of the configuration and the active workers
	Partitions int          `json:"partitions"`
	Members    []memberJSON `json:"members"`
}

type memberJSON struct {
	Name        string `json:"name"`
	Incarnation string `json:"incarnation,omitempty"`
	Role        string `json:"role"`
	State       string `json:"state"`
	Address     string `json:"address"`
	Gossip      string `json:"gossip"`
	Partitions  int    `json:"partitions"` // that the ring gives it
	View        string `json:"view"`       // digest of what it sees
}

func (a *admin) ring(w http.ResponseWriter, _ *http.Request) {
	view := a.cfg.Members.View()
	total := view.Table.Partitions()
	shares := make(map[string]int, len(view.Members))
	for p := range total {
		if m, ok := view.Owner(p); ok {
			shares[m.Incarnation]++
		}
	}
	out := ringJSON{Digest: digestText(view.Digest), Partitions: total, Members: make([]memberJSON, len(view.Members))}
	for i, m := range view.Members {
		out.Members[i] = memberJSON{
			Name: m.Name, Incarnation: m.Incarnation, Role: m.Role.String(), State: m.State.String(),
			Address: m.Addr, Gossip: m.Gossip, Partitions: shares[m.Incarnation], View: digestText(m.View),
		}
	}
	writeJSON(w, out)
}

type lookupJSON struct {
	Key       string `json:"key"`
	Partition int    `json:"partition"`
	Owner     string `json:"owner"`   // empty for none
	Address   string `json:"address"` // empty for none
	Epoch     int64  `json:"epoch,omitempty"`
}

func (a *admin) lookup(w http.ResponseWriter, r *http.Request) {
	key, err := keyFromQuery(r.URL.RawQuery, "key")
	if err == nil {
		err = CheckKey(key)
	}
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

func (a *admin) byRing(key string) (Route, error) {
	p := a.cfg.Members.Settings().Ring.Partition(key)
	m, _ := a.cfg.Members.View().Owner(p)
	return Route{Partition: p, Owner: m}, nil
}

func digestText(d uint64) string { return fmt.Sprintf("%016x", d) }

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // the client may have left
}

// Route is a key's partition and the member to which its requests go.
type Route struct {
	Partition int
	Owner     ring.Member // zero if there is none
	Epoch     int64       // highest one known of the partition; 0 for none
}
