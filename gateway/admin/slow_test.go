package admin_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyway-go/keyway/gateway/admin"
	"github.com/keyway-go/keyway/internal/status"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/ring"
)

// deaf is a client that reads nothing: a write waits for its deadline.
type deaf struct {
	header http.Header
	until  time.Time
}

func (d *deaf) Header() http.Header                { return d.header }
func (d *deaf) WriteHeader(int)                    {}
func (d *deaf) SetWriteDeadline(t time.Time) error { d.until = t; return nil }

func (d *deaf) Write([]byte) (int, error) {
	if d.until.IsZero() {
		select {} // the bubble finds out
	}
	time.Sleep(time.Until(d.until))
	return 0, os.ErrDeadlineExceeded
}

// silent is an operator whose workers tell nothing.
type silent struct{ admin.Operator }

func (silent) Workers(context.Context) []status.WorkerRow { return nil }

// Clients that do not read their answers keep nobody from asking, and are given up.
func TestSlowReaders(t *testing.T) {
	members := hub.New(ring.Settings{}).Join(ring.Member{Name: "a", Role: ring.RoleWorker})
	for _, path := range []string{"/workers", "/moves", "/hot", "/metrics", "/members", "/openapi.yaml", "/debug/pprof/heap", "/"} {
		synctest.Test(t, func(t *testing.T) {
			h := admin.New(admin.Config{Members: members, Operator: silent{}, Metrics: prometheus.NewRegistry()})
			ask := func(w http.ResponseWriter) {
				h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+path, nil))
			}
			for range 32 {
				go ask(&deaf{header: make(http.Header)})
			}
			for _, wait := range []time.Duration{2 * time.Second, time.Minute} {
				time.Sleep(wait)
				rec := httptest.NewRecorder()
				if ask(rec); rec.Code != http.StatusOK {
					t.Errorf("%s, %v after others that do not read: %d %s", path, wait, rec.Code, rec.Body)
				}
			}
		})
	}
}
