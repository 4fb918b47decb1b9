package worker_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// Where gossip has keys, only who has one of them too can run anything at a worker,
// or make a call of members.
func TestTrapStrangersOverLink(t *testing.T) {
	key, other := []byte(strings.Repeat("k", 32)), []byte(strings.Repeat("o", 32))
	w := site.New(t, 16).StartReady(func(cfg *worker.Config) { cfg.Members.(*hub.Handle).Keys = [][]byte{key} })
	ran := 0
	addr := w.Listen(t, w.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran++ })))
	for name, tc := range map[string]struct {
		secrets [][]byte
		ok      bool
	}{"none": {}, "another": {[][]byte{other}, false}, "another first": {[][]byte{other, key}, false}, "the key": {[][]byte{key}, true}} {
		t.Run(name, func(t *testing.T) {
			settings := w.Member.Settings()
			client := &link.Client{Addr: addr, Config: link.Config{Cluster: settings.WithDefaults().Cluster, Digest: settings.Digest(), Secrets: tc.secrets}}
			defer client.Close()
			ran = 0
			for _, r := range []*link.Request{
				{Method: "GET", Target: "/", Host: "x", Key: "k"},
				{Method: ":renew", Call: true, Key: "k"},
			} {
				_, err := client.Do(t.Context(), r)
				if errors.Is(err, link.ErrNotStarted) == tc.ok {
					t.Errorf("%s: %v", r.Method, err)
				}
			}
			if (ran == 1) != tc.ok {
				t.Errorf("the app has run %d times", ran)
			}
		})
	}
}

// Without Config.Direct nobody but a member runs anything at a worker over HTTP,
// whatever the request says. With it, a stranger's request has the key that
// Config.Keys find, and tells nothing else of Keyway's own.
func TestTrapStrangersOverHTTP(t *testing.T) {
	forged := []string{"X-Key", "k", gateway.HeaderKey, "other", gateway.HeaderEpoch, "9999999999", "Keyway-Policy", "x", "Keyway-Client", "1", "Keyway-Token", "7"}
	for name, tc := range map[string]struct {
		change func(*worker.Config)
		status int
		key    string
	}{
		"members only":        {func(cfg *worker.Config) {}, http.StatusForbidden, ""},
		"direct":              {func(cfg *worker.Config) { cfg.Direct, cfg.Keys = true, kit.KeySources(t, "header:X-Key") }, http.StatusOK, "k"},
		"direct without keys": {direct, http.StatusOK, "other"},
	} {
		t.Run(name, func(t *testing.T) {
			w := site.New(t, 16).StartReady(tc.change)
			ran := ""
			addr := w.Listen(t, w.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				ran = r.Header.Get(gateway.HeaderKey)
			})))
			for _, proto := range []string{"HTTP/1.1", "HTTP/2"} {
				for _, upgrade := range []string{"", "websocket"} {
					ran = ""
					req := kit.Must(http.NewRequestWithContext(t.Context(), "GET", "http://"+addr+"/", nil))
					for i := 0; i < len(forged); i += 2 {
						req.Header.Set(forged[i], forged[i+1])
					}
					if upgrade != "" && proto == "HTTP/1.1" {
						req.Header.Set("Connection", "Upgrade")
						req.Header.Set("Upgrade", upgrade)
					}
					res := kit.Must(kit.Client(t, proto).Do(req))
					text := string(kit.Must(io.ReadAll(res.Body)))
					res.Body.Close()
					if res.StatusCode != tc.status || ran != tc.key || (tc.status != http.StatusOK) != strings.Contains(text, "--direct") {
						t.Errorf("%s %s: %d %q, ran with key %q", proto, upgrade, res.StatusCode, text, ran)
					}
				}
			}
		})
	}
}

// A member's request over HTTP says which key it has, wherever the worker looks for
// those of others.
func TestMemberOverHTTP(t *testing.T) {
	key := []byte(strings.Repeat("k", 32))
	w := site.New(t, 16).StartReady(func(cfg *worker.Config) {
		cfg.Members.(*hub.Handle).Keys, cfg.Direct, cfg.Keys = [][]byte{key}, true, kit.KeySources(t, "header:X-Key")
	})
	addr := w.Listen(t, w.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		io.WriteString(rw, r.Header.Get(gateway.HeaderKey))
	})))
	settings := w.Member.Settings()
	member := &link.Client{Addr: addr, Config: link.Config{Cluster: settings.WithDefaults().Cluster, Digest: settings.Digest(), Secrets: [][]byte{key}}}
	defer member.Close()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return member.DialPlain(ctx) }}
	defer transport.CloseIdleConnections()
	for range 3 { // on one connection
		req := kit.Must(http.NewRequestWithContext(t.Context(), "GET", "http://worker/", nil))
		req.Header.Set(gateway.HeaderKey, "mine")
		res := kit.Must(transport.RoundTrip(req))
		if text := string(kit.Must(io.ReadAll(res.Body))); text != "mine" {
			t.Errorf("%d %q", res.StatusCode, text)
		}
		res.Body.Close()
	}
}

// A worker that anybody can reach, and pass for a member at, says so.
func TestOpenWorkerWarns(t *testing.T) {
	for name, tc := range map[string]struct {
		addr string
		keys [][]byte
		open bool
	}{
		"loopback":   {"127.0.0.1:0", nil, false},
		"anybody":    {"0.0.0.0:0", nil, true},
		"with a key": {"0.0.0.0:0", [][]byte{make([]byte, 32)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			logs := new(kit.Buffer)
			w := site.New(t, 16).StartReady(func(cfg *worker.Config) {
				cfg.Members.(*hub.Handle).Keys, cfg.Logger = tc.keys, slog.New(slog.NewTextHandler(logs, nil))
			})
			l := kit.Must(net.Listen("tcp", tc.addr))
			s := w.NewServer(w.Handler(http.NotFoundHandler()))
			done := make(chan error, 1)
			go func() { done <- s.Serve(l) }()
			kit.Eventually(t, "it takes the link", func() bool { return w.Member.Self().Link })
			s.Close()
			<-done
			if strings.Contains(logs.String(), "--gossip-key") != tc.open {
				t.Errorf("%s", logs)
			}
		})
	}
}
