package worker_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/workertest"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// Where gossip has keys, only who has one of them too can run anything at a worker,
// or make a call of members.
func TestTrapStrangersOverLink(t *testing.T) {
	key, other := []byte(strings.Repeat("k", 32)), []byte(strings.Repeat("o", 32))
	w := workertest.New(t, 16).StartReady(func(cfg *worker.Config) { cfg.Members.(*hub.Handle).Keys = [][]byte{key} })
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
