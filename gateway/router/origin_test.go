package router_test

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

// A worker is told which client each request is of: by the address of its
// connection, or what trusted proxies say of it, whichever way the request goes,
// and never by what a client says itself.
func TestWorkersTellClientsApart(t *testing.T) {
	plain := site.NewFake(t, "plain", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header[hop.HeaderClient], r.Header[hop.HeaderPolicy])
	})
	linked := site.LinkWorker(t, func(w *link.ResponseWriter, r *link.ServerRequest) {
		var policies []string
		for name, value := range r.Fields.All() {
			if strings.EqualFold(name, hop.HeaderPolicy) || strings.EqualFold(name, hop.HeaderClient) {
				policies = append(policies, value)
			}
		}
		_, _ = w.Write(fmt.Append(nil, []string{strconv.FormatUint(r.Client, 10)}, policies))
	})
	trusted := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8")}
	eachWay(t, func(t *testing.T, front way) {
		for _, tt := range []struct {
			name    string
			proxies []netip.Prefix
			from    string // what X-Forwarded-For says
			want    string
		}{
			{"by the connection", nil, "192.0.2.9", "127.0.0.1"},
			{"by a proxy", trusted, "192.0.2.9", "192.0.2.9"},
			{"by the last proxy that is trusted", trusted, "192.0.2.9, 192.0.2.8,10.0.0.1 , 10.0.0.2", "192.0.2.8"},
			{"all are trusted", trusted, "10.0.0.3, 10.0.0.2", "10.0.0.3"},
			{"IPv6", trusted, "2001:DB8:0:1:0::7", "2001:db8:0:1::"},
			{"with a port", trusted, "192.0.2.9, 192.0.2.8:4711, 10.0.0.1:80", "192.0.2.8"},
			{"IPv6 with a port", trusted, "[2001:db8:0:1::7]:4711", "2001:db8:0:1::"},
			{"no address", trusted, "10.0.0.3, _hidden", "_hidden"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				for kind, m := range map[string]ring.Member{"plain": plain.Member, "link": linked} {
					s := front(t, site.NewRouter(t, router.Config{Members: hub.Of(m), TrustedProxies: tt.proxies}))
					for _, body := range []string{"", strings.Repeat("x", 70_000)} {
						req := kit.Must(http.NewRequestWithContext(t.Context(), "POST", s.URL, strings.NewReader(body)))
						for name, value := range map[string]string{"X-Key": "k", "X-Forwarded-For": tt.from, hop.HeaderClient: "1", hop.HeaderPolicy: "AQ"} {
							req.Header.Set(name, value)
						}
						want := fmt.Sprint([]string{strconv.FormatUint(hop.ClientID(tt.want), 10)}, []string{})
						if _, got := kit.Do(t, s.HTTP, req); got != want {
							t.Errorf("%s, %d bytes of body: the worker is told %s, want %s", kind, len(body), got, want)
						}
					}
				}
			})
		}
		t.Run("another address", func(t *testing.T) {
			s := front(t, site.NewRouter(t, router.Config{Members: hub.Of(linked)}))
			other := &http.Transport{TLSClientConfig: kit.Untrusted(), DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext}
			defer other.CloseIdleConnections()
			req := kit.Must(http.NewRequestWithContext(t.Context(), "GET", s.URL, nil))
			req.Header.Set("X-Key", "k")
			if _, got := kit.Do(t, &http.Client{Transport: other}, req); !strings.Contains(got, strconv.FormatUint(hop.ClientID("127.0.0.2"), 10)) {
				t.Errorf("the worker is told %s", got)
			}
		})
	})
}
