package routes

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/keysource"
	"github.com/keyway-go/keyway/internal/wire/grammar"
)

// KeyOf returns the key of a request, as a router finds it. Its error wraps [ErrNoRoute] if no route takes the
// request, and otherwise is that of [Table.Match] or [Route.Key]. The request still has its body.
func (t *Table) KeyOf(r *http.Request) (string, error) {
	req := keysource.Of(r)
	route, _, err := t.Find(r.Method, req)
	if err != nil {
		return "", err
	}
	return route.Key(req, new([]byte))
}

// Key returns the key of a request that the route takes: from the first of Keys that
// has one, behind Prefix or the tenant. A key that is put together of these stands in
// memory, until that is used again. Its error wraps [gateway.ErrNoKey] if no source
// has a key, and [gateway.ErrBadKey] if one has a bad one, or there is no tenant.
func (r *Route) Key(req keysource.Keyed, memory *[]byte) (string, error) {
	if len(r.Keys) == 0 {
		return "", gateway.ErrNoKey
	}
	key, err := r.Keys.ExtractFrom(req)
	if err != nil || r.Prefix == "" && len(r.Tenant) == 0 {
		return key, err
	}
	if len(r.Tenant) > 0 {
		tenant, err := r.Tenant.ExtractFrom(req)
		if errors.Is(err, gateway.ErrNoKey) {
			return "", fmt.Errorf("%w: the request has a key and no tenant: send it in %s", gateway.ErrBadKey, r.Tenant)
		}
		if err != nil {
			return "", err
		}
		// A key of its own for each pair: the tenant's own slashes are encoded.
		key = url.PathEscape(tenant) + "/" + key
	} else {
		*memory = append(append((*memory)[:0], r.Prefix...), key...)
		key = grammar.Text(*memory)
	}
	return key, keysource.Check(key)
}
