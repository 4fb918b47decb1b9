package store

import (
	"testing"

	"github.com/keyway-go/keyway/internal/test/metrictest"
)

func TestMetrics(t *testing.T) {
	e := startEmbedded(t)
	s := openStore(t, e.URL(), Config{NewCluster: true})
	const idle = `keyway_store_connections{pool="calls",state="idle"}`
	if n := metrictest.Gather(t, s)[idle]; n != 0 {
		t.Errorf("%v connections before the first call", n)
	}
	gen, err := s.Generation(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	now := metrictest.Gather(t, s)
	if now[idle] == 0 || now[`keyway_store_connections{pool="renewals",state="idle"}`] != 0 {
		t.Errorf("after a call: %v", now)
	}
	_, _ = s.Renew(t.Context(), gen, "nobody", shortTTL)
	if now = metrictest.Gather(t, s); now[`keyway_store_connections{pool="renewals",state="idle"}`] == 0 {
		t.Errorf("after a renewal: %v", now)
	}
	if now[`keyway_store_connection_timeouts_total{pool="calls"}`] != 0 {
		t.Errorf("%v", now)
	}
}
