package router_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/routes"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// identityRoutes has a key in each part of a request, in front of a route that takes the rest without one.
func identityRoutes(t testing.TB) *routes.Table {
	return site.Routes(t,
		`name: orders, match: {path: "/orders/{order}/"}, key: path:order`,
		`name: rooms, match: {path: /room}, key: query:room`,
		`name: carts, match: {path: /cart}, key: cookie:cart`,
		`name: payments, match: {path: /pay}, key: ["header:X-Account", "json:/account/id"]`,
		`name: rest, without-key: any`)
}

// Whichever way a request comes, the app gets the spelling of which the key was read, or
// the client gets 400.
func TestTheKeyIsWhatTheAppReads(t *testing.T) { eachWay(t, testTheKeyIsWhatTheAppReads) }

func testTheKeyIsWhatTheAppReads(t *testing.T, front way) {
	w := site.NewFake(t, "w", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%q of %s", r.Header.Get(gateway.HeaderKey), r.RequestURI)
	})
	members := hub.Of(w.Member)
	all := front(t, site.NewRouter(t, router.Config{Members: members, Routes: identityRoutes(t)}))
	path := front(t, site.NewRouter(t, router.Config{Members: members, Routes: routes.ForKeys(kit.KeySources(t, "path:/orders/{key}"), routes.WithoutKey{Any: true})}))
	for _, tt := range []struct {
		site                 *site.Front
		method, target, body string
		fields               []string
		want                 string
	}{
		{all, "GET", "/orders/42", "", nil, "42"},
		{all, "GET", "/orders/4%32/items?a=%2F", "", nil, "42"},
		{all, "GET", "/room?x=%2Fy&room=a%20b+c", "", nil, "a b c"},
		{all, "GET", "/cart", "", []string{"Cookie", "a=b; cart=c-1"}, "c-1"},
		{all, "POST", "/pay", `{"account": {"id": 7}}`, []string{"X-Account", "7"}, "7"},
		{all, "GET", "/assets/Logo%20A.png", "", nil, ""},

		{all, "GET", "/room?room=A#1", "", nil, "400"},
		{all, "GET", "/assets/a#b", "", nil, "400"},
		{all, "GET", "/orders/42%2Fitems", "", nil, "400"},
		{all, "GET", "/orders/42;a=b", "", nil, "400"},
		{all, "GET", `/orders/42\items`, "", nil, "400"},
		{all, "post", "/orders/9", "", nil, "400"},
		{all, "GET", "/Orders/42", "", nil, "400"},
		{all, "GET", "/%2forders/42", "", nil, "400"},
		{all, "GET", "/x/..;/orders/42", "", nil, "400"},
		{all, "GET", "/room?room=A;room=B", "", nil, "400"},
		{all, "GET", "/room?room=A&room[]=B", "", nil, "400"},
		{all, "GET", "/cart", "", []string{"Cookie", `cart="\101"`}, "400"},
		{all, "POST", "/pay", `{"account": {"id": 7}}`, []string{"X-Account", "8"}, "400"},
		{all, "POST", "/pay", `{"account": {"id": 7}}`, []string{"Content-Type", "application/json; charset=utf-7"}, "400"},

		{path, "GET", "/orders/42", "", nil, "42"},
		{path, "GET", "/about", "", nil, ""},
		{path, "GET", "/x//orders/42", "", nil, "400"},
		{path, "GET", "/x/../orders/42", "", nil, "400"},
		{path, "GET", "/%2e/orders/42", "", nil, "400"},
		{path, "GET", "/ORDERS/42", "", nil, "400"},
		{path, "put", "/orders/42", "", nil, "400"},
	} {
		req := kit.Must(http.NewRequestWithContext(t.Context(), tt.method, tt.site.URL, strings.NewReader(tt.body)))
		req.URL = &url.URL{Scheme: req.URL.Scheme, Host: req.URL.Host, Opaque: tt.target}
		req.Header.Set("Content-Type", "application/json")
		for i := 0; i < len(tt.fields); i += 2 {
			req.Header.Set(tt.fields[i], tt.fields[i+1])
		}
		want := tt.want
		if want != "400" {
			want = fmt.Sprintf("%q of %s", url.PathEscape(want), tt.target)
		}
		res, err := tt.site.HTTP.Do(req)
		if err != nil {
			t.Errorf("%s %s: %v", tt.method, tt.target, err)
			continue
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		got := string(body)
		if res.StatusCode != http.StatusOK {
			got = fmt.Sprint(res.StatusCode)
		}
		if got != want {
			t.Errorf("%s %s %s: %s, want %s: %s", tt.method, tt.target, tt.fields, got, want, body)
		}
	}
}
