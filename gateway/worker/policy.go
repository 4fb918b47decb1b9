package worker

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/worker/internal/keyed"
	"github.com/keyway-go/keyway/internal/policy"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// maxPolicies is how many policies are kept decoded. Routers have one for each route that has any.
const maxPolicies = 1024

// errPolicy: a router asks for what this worker does not know.
var errPolicy = errors.New("worker: this version does not know a setting of the request's route")

// policies are the decoded policies that routers have sent, by their encodings.
type policies struct {
	known atomic.Pointer[map[string]*policy.Policy] // replaced as a whole
}

// get returns a policy; nil for none.
func (ps *policies) get(encoded []byte) (*policy.Policy, error) {
	if len(encoded) == 0 {
		return nil, nil
	}
	known := ps.known.Load()
	if known != nil {
		if p := (*known)[string(encoded)]; p != nil {
			return p, nil
		}
	}
	decoded, err := policy.Decode(encoded)
	if err != nil {
		return nil, err
	}
	more := map[string]*policy.Policy{}
	if known != nil && len(*known) < maxPolicies {
		maps.Copy(more, *known)
	}
	more[string(encoded)] = &decoded
	ps.known.CompareAndSwap(known, &more) // or the next request decodes it again
	return &decoded, nil
}

func (w *Worker) askingOf(r *http.Request) (how keyed.Asking, err error) {
	how.Epoch, _ = strconv.ParseInt(r.Header.Get(gateway.HeaderEpoch), 10, 64)
	how.Client, _ = strconv.ParseUint(r.Header.Get(hop.HeaderClient), 10, 64)
	encoded, err := policy.FromText(r.Header.Get(hop.HeaderPolicy))
	if err == nil {
		how.Policy, err = w.policies.get(encoded)
	}
	return how, w.policyError(err)
}

func (w *Worker) askingOfLink(r *link.ServerRequest) (how keyed.Asking, err error) {
	how.Epoch, how.Share, how.Client = r.Epoch, r, r.Client
	how.Policy, err = w.policies.get(r.Policy)
	return how, w.policyError(err)
}

func (w *Worker) policyError(err error) error {
	if err == nil {
		return nil
	}
	w.log.Error("a request was refused: this version does not know a setting of its route", "error", err)
	return fmt.Errorf("%w: %w", errPolicy, err)
}

func (w *Worker) timeoutOf(p *policy.Policy) time.Duration {
	if p == nil {
		return w.cfg.Timeout
	}
	return cmp.Or(p.Timeout, w.cfg.Timeout)
}

// limits returns the policies with a rate, one for each route.
func (ps *policies) limits() map[string]policy.Rate {
	limits := make(map[string]policy.Rate)
	if known := ps.known.Load(); known != nil {
		for _, p := range *known {
			if p.Rate != (policy.Rate{}) {
				limits[p.Route] = p.Rate
			}
		}
	}
	return limits
}
