package router

import (
	"net/http"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/operator"
	"github.com/keyway-go/keyway/internal/keysource"
	"github.com/keyway-go/keyway/internal/status"
)

// Operator returns an operator that knows the router's routes.
func (rt *Router) Operator() *operator.Operator { return operator.New(rt.workers, rt.explain) }

// explain explains the route and the key of a request. It uses the parts of r that key
// sources read, and takes RemoteAddr without its port as the client.
func (rt *Router) explain(r *http.Request) (*status.Explanation, error) {
	req := keysource.Of(r)
	d, err := rt.decide(r.Method, req, new([]byte))
	if err != nil {
		return nil, err
	}
	e := &status.Explanation{Route: d.route.Name, Mode: d.route.Policy.Mode.String(), Key: d.key}
	for _, s := range d.route.Keys {
		if _, err := (gateway.KeySources{s}).ExtractFrom(req); err == nil && d.key != "" {
			e.Source = s.String()
			break
		}
	}
	return e, nil
}
