package router_test

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/routertest"
)

func echoKey(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %d %v", r.Header.Get(gateway.HeaderKey), len(body), err)
}

// Keys of every kind reach the worker, and so does the body in which one stands.
func TestKeysOfEveryKind(t *testing.T) { routertest.EachWay(t, testKeysOfEveryKind) }

func testKeysOfEveryKind(t *testing.T, front routertest.Way) {
	w := routertest.NewWorker(t, "w", echoKey)
	members := routertest.NewCluster(t, w.Member)
	padded := `{"order": {"id": 42}}` + strings.Repeat(" ", 50_000)
	for _, tt := range []struct {
		spec, path, body string
		header           []string
		want             string
	}{
		{"json:/order/id", "/", padded, nil, fmt.Sprint("42 ", len(padded), " <nil>")},
		{"json:/order/id", "/", padded + strings.Repeat(" ", 20_000), nil, "400"},
		{"json:/order/id", "/", "{}", nil, "400"},
		{"json:/order/id", "/", "", nil, "400"},
		{"grpc:order-bin", "/", "", []string{"Order-Bin", "NDI="}, "42 0 <nil>"},
		{"client", "/", "", []string{"X-Forwarded-For", "192.0.2.1"}, "127.0.0.1 0 <nil>"},
		{"path:/o/{id}", "/o/42/", "", nil, "42 0 <nil>"},
		{"path:/o/{id}", "/o//42/", "", nil, "400"},
	} {
		s := front(t, routertest.New(t, router.Config{Members: members, Keys: kit.KeySources(t, tt.spec)}))
		for _, chunked := range []bool{false, true} {
			req := kit.Must(http.NewRequestWithContext(t.Context(), "POST", s.URL+tt.path, strings.NewReader(tt.body)))
			if req.Header.Set("Content-Type", "application/json"); chunked && tt.body != "" {
				req.ContentLength = -1
			}
			for i := 0; i < len(tt.header); i += 2 {
				req.Header.Set(tt.header[i], tt.header[i+1])
			}
			res, got := kit.Do(t, s.Client(), req)
			if res.StatusCode != 200 {
				got = fmt.Sprint(res.StatusCode)
			}
			if got != tt.want {
				t.Errorf("%s, chunked %v: %.100q, want %q", tt.spec, chunked, got, tt.want)
			}
		}
	}
}

func TestTheKeyOfAClientBehindAProxy(t *testing.T) {
	routertest.EachWay(t, func(t *testing.T, front routertest.Way) {
		w := routertest.NewWorker(t, "w", echoKey)
		s := front(t, routertest.New(t, router.Config{
			Members: routertest.NewCluster(t, w.Member), Keys: kit.KeySources(t, "client"),
			TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8")},
		}))
		req := kit.Must(http.NewRequestWithContext(t.Context(), "GET", s.URL, nil))
		req.Header.Set("X-Forwarded-For", "192.0.2.7, 192.0.2.8, 10.0.0.1")
		if _, got := kit.Do(t, s.Client(), req); got != "192.0.2.8 0 <nil>" {
			t.Errorf("got %q", got)
		}
	})
}

// A client that does not send the body in which its key stands is not waited for
// longer than for any body.
func TestABodyWithAKeyThatDoesNotCome(t *testing.T) {
	routertest.EachWay(t, func(t *testing.T, front routertest.Way) {
		w := routertest.NewWorker(t, "w", echoKey)
		rt := routertest.New(t, router.Config{Members: routertest.NewCluster(t, w.Member), Keys: kit.KeySources(t, "json:/id"), ClientTimeout: 100 * time.Millisecond})
		s := front(t, rt)
		body, write := io.Pipe()
		defer write.Close()
		go io.WriteString(write, `{"id":`)
		req := kit.Must(http.NewRequestWithContext(t.Context(), "POST", s.URL, body))
		req.Header.Set("Content-Type", "application/json")
		if res, err := s.Client().Do(req); err == nil {
			defer res.Body.Close()
			if res.StatusCode != http.StatusRequestTimeout {
				t.Errorf("status %d", res.StatusCode)
			}
		} else if !s.HTTP2 {
			t.Error(err)
		}
		if w.Hits.Load() != 0 {
			t.Error("the request reached a worker")
		}
	})
}
