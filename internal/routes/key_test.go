package routes_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/routes"
)

// The key of a request of net/http is that of its route, and the request still has its body.
func TestKeyOf(t *testing.T) {
	all := table(t, `name: orders, match: {methods: [POST], path: "/orders/{order}"}, key: path:order, prefix: "order:"`,
		`name: payments, match: {path: /payments}, key: "json:/order", tenant: header:X-Tenant`)
	for _, tt := range []struct {
		method, path string
		key          string
		err          error
	}{
		{"POST", "/orders/7", "order:7", nil},
		{"OPTIONS", "/orders/7", "order:7", nil}, // asks for POST
		{"GET", "/orders/7", "", routes.ErrNoRoute},
		{"POST", "/orders//7", "", gateway.ErrBadKey},
		{"post", "/orders/7", "", gateway.ErrBadKey},
		{"POST", "/payments", "a/7", nil},
	} {
		const body = `{"order": 7}`
		r := httptest.NewRequest(tt.method, tt.path, strings.NewReader(body))
		r.Header = http.Header{"Content-Type": {"application/json"}, "X-Tenant": {"a"}, "Origin": {"http://a"}, "Access-Control-Request-Method": {"POST"}}
		key, err := all.KeyOf(r)
		if key != tt.key || !errors.Is(err, tt.err) || (err != nil) != (tt.err != nil) {
			t.Errorf("%s %s: %q, %v; want %q, %v", tt.method, tt.path, key, err, tt.key, tt.err)
		}
		if rest, err := io.ReadAll(r.Body); string(rest) != body || err != nil {
			t.Errorf("%s %s: the body has %q left, %v", tt.method, tt.path, rest, err)
		}
	}
}
