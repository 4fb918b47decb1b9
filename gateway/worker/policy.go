package worker

import (
	"errors"
	"maps"
	"sync/atomic"

	"github.com/keyway-go/keyway/internal/policy"
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
