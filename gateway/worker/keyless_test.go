package worker_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/policy"
	"github.com/keyway-go/keyway/internal/test/site"
)

// Requests of a route that holds no key run beside whoever holds it, and have no
// token; those without a key have none of a key's fields.
func TestRequestsWithoutTheirKeysHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 4).StartOwner()
		h := w.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			_, hasToken := worker.TokenFrom(r.Context())
			fmt.Fprint(rw, r.Header[gateway.HeaderKey], len(r.Header[gateway.HeaderPartition]), r.Header[gateway.HeaderToken], r.Header[gateway.HeaderEpoch], hasToken, r.Header["Baggage"])
		}))
		release := make(chan struct{})
		held := make(chan struct{})
		done := make(chan error, 1)
		go func() {
			done <- w.Do(t.Context(), "k", func(gateway.Execution) error {
				close(held)
				<-release
				return nil
			})
		}()
		<-held
		for _, tt := range []struct {
			mode policy.Mode
			key  string
			want string
		}{
			{policy.Affinity, "k", "[k] 1 [] [] false []"},
			{policy.Unkeyed, "", "[] 0 [] [] false []"},
			{policy.Unkeyed, "k", "[] 0 [] [] false []"},
		} {
			if got := askBy(t, h, tt.key, policy.Policy{Route: "r", Mode: tt.mode}); got.Code != http.StatusOK || got.Body.String() != tt.want {
				t.Errorf("%v of %q: %d %s, want %s", tt.mode, tt.key, got.Code, got.Body, tt.want)
			}
		}
		if got := askBy(t, h, "", policy.Policy{Route: "r", Mode: policy.Affinity}); got.Code != http.StatusBadRequest {
			t.Errorf("a route with keys takes a request without one: %d", got.Code)
		}
		close(release)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := w.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		for _, mode := range []policy.Mode{policy.Affinity, policy.Unkeyed} {
			if got := askBy(t, h, "k", policy.Policy{Route: "r", Mode: mode}); got.Code != http.StatusServiceUnavailable && got.Code != http.StatusMisdirectedRequest {
				t.Errorf("%v at a worker that has left: %d", mode, got.Code)
			}
		}
	})
}
