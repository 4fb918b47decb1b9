package store

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/keyway-go/keyway/internal/metrics"
)

// The families of metrics of a store; docs/metrics.md describes them.
var (
	families metrics.Families

	connectionsMetric = families.Gauge("keyway_store_connections", "Connections to Redis: for renewals, which have their own, and for all other calls.", "pool", "state")
	timeoutsMetric    = families.Counter("keyway_store_connection_timeouts_total", "Calls that found no connection to Redis in time.", "pool")
	staleMetric       = families.Counter("keyway_store_connections_stale_total", "Connections to Redis that were found broken.", "pool")
)

var _ prometheus.Collector = (*Store)(nil)

// Describe implements [prometheus.Collector].
func (s *Store) Describe(ch chan<- *prometheus.Desc) { families.Describe(ch) }

// Collect implements [prometheus.Collector].
func (s *Store) Collect(ch chan<- prometheus.Metric) {
	for pool, client := range map[string]redis.UniversalClient{"calls": s.client, "renewals": s.renewal} {
		stats := client.PoolStats()
		metrics.Send(ch, connectionsMetric, int(stats.IdleConns), pool, "idle")
		metrics.Send(ch, connectionsMetric, max(int(stats.TotalConns)-int(stats.IdleConns), 0), pool, "busy")
		metrics.Send(ch, timeoutsMetric, int(stats.Timeouts), pool)
		metrics.Send(ch, staleMetric, int(stats.StaleConns), pool)
	}
}
