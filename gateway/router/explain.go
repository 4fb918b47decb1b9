package router

import (
	"context"
	"net/http"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/operator"
	"github.com/keyway-go/keyway/internal/keysource"
	"github.com/keyway-go/keyway/internal/status"
)

// operatorOfRoutes is an operator that knows the router's routes.
type operatorOfRoutes struct {
	*operator.Operator
	router *Router
}

// Operator returns an operator that knows the router's routes.
func (rt *Router) Operator() status.Operator {
	return &operatorOfRoutes{operator.New(rt.workers), rt}
}

// ExplainRequest implements [status.Operator]. It uses the parts of r that key sources read, and
// takes RemoteAddr without its port as the client.
func (o *operatorOfRoutes) ExplainRequest(ctx context.Context, r *http.Request) (*status.Explanation, error) {
	req := keysource.Of(r)
	d, err := o.router.decide(r.Method, req, new([]byte))
	if err != nil {
		return nil, err
	}
	e := &status.Explanation{Route: d.route.Name, Mode: d.route.Policy.Mode.String(), Key: d.key}
	if d.key != "" {
		for _, s := range d.route.Keys {
			if _, err := (gateway.KeySources{s}).ExtractFrom(req); err == nil {
				e.Source = s.String()
				break
			}
		}
		o.Follow(ctx, e)
	}
	e.Conclude()
	return e, nil
}
